"""The arithmetic of the page, counted again."""

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"


def test_the_page_shows_what_the_script_computes() -> None:
    from benchmarks.past_these_machines import table

    assert table() in PAGE.read_text(encoding="utf-8")


def test_memory_and_bottleneck_are_as_the_page_says() -> None:
    from benchmarks.past_these_machines import GPU_MEMORY, cost, even_ranks, seconds

    assert cost(65536)["memory"] > GPU_MEMORY > cost(32768)["memory"]
    for d in (8192, 65536):
        ranks = even_ranks(d)
        assert seconds(d, 1)["rows"] / ranks == pytest.approx(seconds(d, 1)["alone"])
    d, n, c = 8192, 1e9, 20_000
    both = 2 * (2 * n * 1152 * d + 2 * n * d * d) + 6 * n * d * c
    assert cost(d)["rows"] == pytest.approx(both)
