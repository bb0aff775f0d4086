"""The paper's figures were compared cell by cell with its source; these guard against slips of the parser."""

from dsal.protocol.metrics import MeanStd
from dsal.protocol.paper_numbers import TABLE_1, TABLE_2, paper_results


def test_marks_and_brackets_are_read() -> None:
    (pass_,) = paper_results("cifar100", 25, "pass")
    assert (pass_.backbone, pass_.reproduced, pass_.exemplar_free) == ("resnet18", True, True)
    assert (pass_.average, pass_.last) == (MeanStd(56.86), MeanStd(44.76))
    (lucir,) = paper_results("cifar100", 5, "lucir")
    assert (lucir.backbone, lucir.reproduced, lucir.exemplar_free) == ("resnet32", False, False)


def test_both_backbones_of_ds_al_keep_their_deviations() -> None:
    narrow, wide = paper_results("cifar100", 50, "ds-al")
    assert (narrow.average, narrow.last) == (MeanStd(66.33, 0.11), MeanStd(58.37, 0.15))
    assert (wide.average, wide.last) == (MeanStd(68.26, 0.08), MeanStd(61.35, 0.26))


def test_every_cell_is_there_once() -> None:
    keys = [(r.method, r.dataset, r.backbone, r.phases) for r in TABLE_1]
    assert len(keys) == len(set(keys))
    averages, lasts = (sum(getattr(r, panel) is not None for r in TABLE_1) for panel in ("average", "last"))
    assert (averages, lasts) == (68, 61)


def test_the_ablation_ends_where_table_1_stands() -> None:
    (full,) = paper_results("imagenet", 5, "ds-al")
    assert full.last is not None
    assert full.average is not None
    assert (TABLE_2[-1].last, TABLE_2[-1].average) == (full.last.mean, full.average.mean)
