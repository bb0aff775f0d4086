"""The table of what short and masked messages cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_shows_what_was_measured() -> None:
    pytest.importorskip("cryptography")
    from benchmarks.federated import table

    measured = json.loads((ROOT / "benchmarks/results/federated.json").read_text(encoding="utf-8"))
    assert table(measured) in (ROOT / "docs/distributed.md").read_text(encoding="utf-8")


def test_a_small_one() -> None:
    pytest.importorskip("cryptography")
    from benchmarks.federated import measure

    found = {row["sent"]: row for row in measure(64)}
    assert found["float64"]["largest_difference"] < 1e-8
    assert found["masked, 36 bits"]["largest_difference"] < 1e-6
    assert found["float32"]["bytes"] < 0.6 * found["float64"]["bytes"]
    assert all(found[name]["changed"] == 0 for name in ("float64", "masked, 36 bits"))
