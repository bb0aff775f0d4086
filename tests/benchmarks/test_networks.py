"""A comparison with methods that train a network, in words: who is ahead, in which order, at what cost."""

import json
from pathlib import Path
from typing import Any

from dsal.reproduction.item import Table

ORIGIN = {
    "dsal": "0", "commit": "abcdef0123456789", "torch": "2", "cpu": "a CPU", "threads": 1, "started": "today",
    "image_dataset": "cifar100", "backbone": {"size": 16},
}  # fmt: skip


def run(method: str, average: float, last: float, *, samples: int = 0) -> dict[str, Any]:
    """A row of ``comparison.json``."""
    percent = [{"mean": value, "std": 0.0, "values": [value]} for value in (average, last)]
    return {
        "method": method,
        "phases": 5,
        "seeds": [0],
        **dict(zip(("average_accuracy", "last_accuracy"), percent, strict=True)),
        "base_accuracy": percent[1],
        "new_accuracy": percent[1],
        "seconds": 60.0,
        "stored_bytes": 2_000_000,
        "stored_samples": samples,
        "trained_parameters": None if method == "ds-al" else 470_000,
        "peak_memory_bytes": 500_000_000,
        "config": {"epochs": 1, "adapt_epochs": 2, "class_order": "natural", "weights": "some/base.safetensors"},
    }


def told(tmp_path: Path, *runs: dict[str, Any]) -> tuple[str, Table]:
    """All text, and the table."""
    from benchmarks.networks import describe_networks, read_networks

    path = tmp_path / "comparison.json"
    path.write_text(json.dumps({"schema": 1, "runs": runs, "tuning": {}, "provenance": ORIGIN}), encoding="utf-8")
    blocks = describe_networks(read_networks(path))
    (table,) = (block for block in blocks if isinstance(block, Table))
    return "\n".join(block for block in blocks if isinstance(block, str)), table


def test_who_is_ahead_by_how_much_and_at_what_cost(tmp_path: Path) -> None:
    text, table = told(tmp_path, run("ds-al", 50, 44), run("icarl", 51.5, 43, samples=2000), run("lwf", 30, 20))
    assert "icarl by +1.50 on average and -1.00 at the end (60 s, 2.0 MB and 2,000 images kept)" in text
    assert "lwf by" not in text
    assert "images of 16 pixels; 1 epoch per phase" in text
    assert "2 epochs of phase 0" in text
    assert "All start from base.safetensors" in text
    rows = {row[0]: dict(zip(table.heads, row, strict=True)) for row in table.rows}
    assert list(rows) == ["icarl", "ds-al", "lwf"]  # best average first
    assert rows["lwf"]["minus DS-AL"] == "-20.00"
    assert rows["lwf"]["paper: average"] == "49.59"
    assert rows["icarl"]["images kept"] == "2,000"
    assert rows["ds-al"]["trained weights"] == "-"


def test_the_order_of_the_literature_or_where_it_fails(tmp_path: Path) -> None:
    text, _ = told(tmp_path, run("finetune", 20, 10), run("lwf", 30, 20), run("icarl", 25, 20, samples=2000))
    assert "Of its 2 pairs that were run, 1 are in this order; the others: lwf 30.00 against icarl 25.00." in text
    assert "Not run: ewc, lucir, podnet." in text
    assert "Not run at this K: " in text
    assert "joint-network" in text


def test_nobody_ahead(tmp_path: Path) -> None:
    text, _ = told(tmp_path, run("ds-al", 50, 44), run("podnet-aanets", 40, 30, samples=2000))
    assert "No method is ahead of DS-AL at this budget" in text
    assert "read other features than the rest" in text
    _, table = told(tmp_path, run("podnet-aanets", 40, 30, samples=2000))
    assert "66.31" in table.rows[0]  # what the paper calls AANets
