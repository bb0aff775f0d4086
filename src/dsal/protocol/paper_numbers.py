"""The paper's published numbers: Tables 1 and 2 of Zhuang et al., AAAI 2024.

They are the paper's, not ours: other backbones, other training, other machines. The paper cites
replay-based methods from their own papers; its authors ran PASS and IL2A (marked with an asterisk) with official code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dsal.protocol.metrics import MeanStd

# Cells as printed: brackets for ResNet-18 on CIFAR-100, * for reproduced by the authors, - for not available.
# Columns: CIFAR-100, ImageNet-100, ImageNet-Full, each with K = 5, 25, 50.
_DATASETS = ("cifar100", "imagenet100", "imagenet")
_PHASES = (5, 25, 50)

_AVERAGE = """
LUCIR     replay  63.17     57.54     -         70.84       61.44       -           64.45       56.56       -
PODNet    replay  64.83     60.72     57.98     75.54       68.31       62.48       66.95       59.17       -
AANets    replay  66.31     62.31     -         76.96       71.78       -           67.73       61.78       -
RMM       replay  68.36     64.12     -         79.50       75.01       -           69.21       63.93       -
FOSTER    replay  -         67.95     -         -           69.34       -           -           -           -
LwF       free    49.59     45.51     -         53.62       44.32       -           51.50       43.14       -
ACIL      free    66.30     65.95     66.01     74.81       74.59       74.13       65.34       64.63       64.35
PASS      free    (63.88*)  (56.86*)  (41.11*)  72.24*      52.02*      30.59*      -           -           -
IL2A      free    (65.53*)  (53.15*)  (21.49*)  -           -           -           -           -           -
FeTrIL    free    (66.30)   -         -         72.20       -           -           66.10       -           -
iVoro-ND  free    (67.55)   -         -         -           -           -           -           -           -
DS-AL free 66.39±0.09   66.20±0.05   66.33±0.11   -   -   -   -   -   -
DS-AL free (68.39±0.16) (68.40±0.20) (68.26±0.08) 75.19±0.10 75.03±0.07 74.77±0.11 67.18±0.03 66.81±0.03 66.79±0.02
"""

_LAST = """
LUCIR     replay  54.30     48.35     -         60.00       49.26       -           56.60       46.23       -
PODNet    replay  54.60     51.40     -         67.60       55.34       -           58.90       50.51       -
AANets    replay  59.39     53.55     -         69.40       63.69       -           60.84       53.21       -
RMM       replay  59.00     56.50     -         73.80       68.84       -           62.50       55.50       -
LwF       free    43.36     41.66     -         55.32       55.12       -           48.70       49.84       -
ACIL      free    57.78     57.65     57.83     66.98       67.16       67.22       56.11       55.43       56.09
PASS      free    (55.75*)  (44.76*)  (28.02*)  61.76*      37.46*      18.22*      -           -           -
IL2A      free    (53.36*)  (35.27*)  (11.03*)  -           -           -           -           -           -
iVoro-ND  free    (57.25)   -         -         -           -           -           -           -           -
DS-AL free 58.26±0.09   58.32±0.12   58.37±0.15   -   -   -   -   -   -
DS-AL free (61.44±0.08) (61.41±0.26) (61.35±0.26) 68.00±0.17 67.72±0.13 67.80±0.15 58.17±0.04 58.10±0.02 58.15±0.03
"""


@dataclass(frozen=True)
class PaperResult:
    """One method in one setting of Table 1.

    Attributes:
        method: as the paper spells it; ``method.lower()`` is the name used here.
        exemplar_free: whether it keeps no samples.
        dataset: ``cifar100``, ``imagenet100`` or ``imagenet`` (the paper's ImageNet-Full).
        backbone: ``resnet32`` or ``resnet18``, as the table's caption says.
        phases: K.
        average: average incremental accuracy over phases 0..K, in percent; with a deviation if the paper gives one
            (3 runs).
        last: accuracy after phase K.
        reproduced: run by the authors with official code, rather than cited.
    """

    method: str
    exemplar_free: bool
    dataset: str
    backbone: str
    phases: int
    average: MeanStd | None
    last: MeanStd | None
    reproduced: bool

    @property
    def backbone_title(self) -> str:
        """The backbone as the paper spells it."""
        return {"resnet32": "ResNet-32", "resnet18": "ResNet-18"}[self.backbone]


@dataclass(frozen=True)
class Ablation:
    """One row of Table 2: modules added one after the other (ImageNet-Full, K = 5, C = 1.4)."""

    modules: str
    last: float
    average: float


TABLE_2 = (
    Ablation("C-RLS", 56.11, 65.34),
    Ablation("C-RLS + DAC", 57.43, 66.71),
    Ablation("C-RLS + DAC + PLC", 58.17, 67.18),
)


def paper_results(dataset: str, phases: int, method: str | None = None) -> tuple[PaperResult, ...]:
    """Return the results of Table 1 for a data set and K, in the table's order; empty if there are none.

    >>> [(r.method, r.backbone, r.last.mean) for r in paper_results("cifar100", 25, "ds-al")]
    [('DS-AL', 'resnet32', 58.32), ('DS-AL', 'resnet18', 61.41)]
    """
    return tuple(
        result
        for result in TABLE_1
        if (result.dataset, result.phases) == (dataset, phases) and method in (None, result.method.lower())
    )


def comparable_results(document: Mapping[str, Any], methods: Collection[str] | None = None) -> tuple[PaperResult, ...]:
    """Return the results of Table 1 in the setting of a run; empty if the paper has no such setting.

    The paper has half of the classes first, all samples, and a test after every phase.

    Args:
        document: the results of the run (``results.json``).
        methods: names of methods; all by default.
    """
    config, phases, dataset = document["config"], document["phases"], document["provenance"].get("image_dataset")
    half = 2 * phases[0]["classes_seen"] == phases[-1]["classes_seen"]
    if dataset is None or not half or "shots" in config or "eval_every" in config:
        return ()
    listed = paper_results(dataset, phases[-1]["phase"])
    return tuple(result for result in listed if methods is None or result.method.lower() in methods)


def nearest_result(results: Iterable[PaperResult], architecture: str) -> PaperResult | None:
    """Return the result with this backbone, else the first; None if there are none."""
    listed = list(results)
    return next((result for result in listed if architecture.startswith(result.backbone)), next(iter(listed), None))


_Key = tuple[str, bool, str, str, int, bool]


def _cells(table: str) -> Iterator[tuple[_Key, MeanStd]]:
    columns = [(dataset, phases) for dataset in _DATASETS for phases in _PHASES]
    for line in table.strip().splitlines():
        method, kind, *cells = line.split()
        for (dataset, phases), cell in zip(columns, cells, strict=True):
            if cell == "-":
                continue
            backbone = "resnet32" if dataset == "cifar100" and not cell.startswith("(") else "resnet18"
            value, _, std = cell.strip("()*").partition("±")
            key = (method, kind == "free", dataset, backbone, phases, "*" in cell)
            yield key, MeanStd(float(value), float(std) if std else None)


def _table_1() -> tuple[PaperResult, ...]:
    average, last = dict(_cells(_AVERAGE)), dict(_cells(_LAST))
    return tuple(
        PaperResult(method, free, dataset, backbone, phases, average.get(key), last.get(key), reproduced)
        for key in average  # every cell of the lower panel has one in the upper panel
        for method, free, dataset, backbone, phases, reproduced in [key]
    )


TABLE_1 = _table_1()
