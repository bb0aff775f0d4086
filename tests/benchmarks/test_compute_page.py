"""Accuracy against computation, in words: who passes DS-AL and where, in which order, and what was not run."""

from typing import Any

import pytest

TRIAL = {
    "method": "lwf",
    "phases": 5,
    "epochs": 10,
    "options": {"lr": 0.03, "strength": 1.0},
    "base": 60.0,
    "new": 20.0,
}
ORIGIN = {"dsal": "0", "torch": "2", "cpu": "a CPU", "threads": 1}


def run(method: str, epochs: int, average: float, last: float, *, seed: int = 0, **more: Any) -> dict[str, Any]:
    """A row of ``compute.json``."""
    return {
        "method": method, "phases": 5, "epochs": epochs, "features": "last, one view", "seed": seed,
        "seconds": 100.0 * epochs, "base_seconds": 1.0, "start": 80.0, "average": average, "last": last, "base": last,
        "new": last, "other_readouts": {}, **more,
    }  # fmt: skip


def told(*runs: dict[str, Any]) -> str:
    from benchmarks.compute_page import page

    trials = [TRIAL, {**TRIAL, "options": {"lr": 0.1, "strength": 1.0}, "base": 70.0, "new": 5.0}]
    return page({"runs": list(runs), "trials": trials, "environment": ORIGIN})


def test_who_passes_and_at_which_budget_first() -> None:
    text = told(run("ds-al", 1, 50, 44), run("icarl", 1, 40, 30), run("icarl", 3, 51, 40), run("icarl", 10, 55, 43))
    assert "(50.00 / 44.00, 100 s) is passed by iCaRL (average 51.00; 3 epochs a phase, 3.0 times its seconds)." in text
    assert "last" not in text.split("is passed by")[1].split(".\n")[0]


def test_nobody_passes() -> None:
    assert "is passed by no method, at no budget." in told(run("ds-al", 1, 50, 44), run("icarl", 10, 49, 43))


def test_the_order_is_that_of_the_largest_budget_both_have() -> None:
    rows = [run("finetune", 1, 30, 20), run("finetune", 3, 20, 10), run("lwf", 1, 25, 15), run("lwf", 3, 25, 15)]
    assert "Of its 1 pairs here, 1 are in it." in told(*rows)
    assert "not Fine-tuning 40.00, LwF 35.00 at 10 epochs (after phase 0 80.00, 80.00)." in told(
        *rows, run("finetune", 10, 40, 20), run("lwf", 10, 35, 20)
    )


def test_methods_out_of_order_are_compared_with_the_same_read_out() -> None:
    icarl = run("icarl", 1, 60, 47, other_readouts={"cnn": {"average": 35.0, "last": 18.0}})
    lucir = run("lucir", 1, 50, 35, other_readouts={"nme": {"average": 59.0, "last": 47.0}})
    same = "after phase 0 80.00, 80.00; with the nearest mean of both 60.00, 59.00; with the head of both 35.00, 50.00"
    assert f"0 are in it; not iCaRL 60.00, LUCIR 50.00 at 1 epoch ({same})." in told(icarl, lucir)


def test_what_was_not_run_is_listed() -> None:
    text = told(run("icarl", 1, 40, 30), run("icarl", 3, 40, 30), run("icarl", 10, 40, 30), run("ewc", 3, 40, 30))
    assert "iCaRL at 30;" in text
    assert "EWC at 1, 10;" in text


def test_seeds_are_averaged() -> None:
    text = told(run("icarl", 1, 40, 30), run("icarl", 1, 42, 30, seed=1))
    assert "| 41.00 ± 1.41 | 30.00 ± 0.00 |" in text


def test_the_chosen_setting_comes_first() -> None:
    assert "| 5 x 10 | lr 0.03, strength 1 | 60.0 / 20.0 | lr 0.1, strength 1: 70.0 / 5.0 |" in told(
        run("lwf", 1, 40, 30)
    )


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    text = told(run("ds-al", 1, 50, 44), run("icarl", 1, 40, 30), run("lwf", 1, 40, 30))
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 3
    for table in tables:
        assert len({line.count("|") for line in table}) == 1, table[0]


@pytest.mark.parametrize("heights", [[1.0, 1.0, 1.0], [3.0, 1.0, 1.2, 1.1], [5.0]])
def test_labels_keep_their_order_and_distance(heights: list[float]) -> None:
    from benchmarks.compute_page import apart

    places = apart(heights, 0.5)
    order = sorted(range(len(heights)), key=lambda number: heights[number])
    assert all(places[high] - places[low] > 0.49 for number, low in enumerate(order) for high in order[number + 1 :])


def test_every_method_of_the_results_is_in_the_figure() -> None:
    from benchmarks.compute_page import ASKED, draw, means, read

    rows = means(read()["runs"])
    upper, lower = draw(rows).axes
    curves = {row["method"] for row in rows if row["phases"] == 5} - {"ds-al", "acil"}
    assert curves <= set(ASKED)
    for panel in (upper, lower):
        assert sum(len(line.get_xdata()) > 0 and line.get_marker() == "o" for line in panel.lines) == len(curves)
