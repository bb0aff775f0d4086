"""The pages show the committed results, and nothing else."""

from pathlib import Path

import pytest


def test_results_go_into_a_page_once() -> None:
    from benchmarks.tables import END, START, filled

    once = filled(f"before\n{START}\nold\n{END}\nafter\n", "new\n")
    assert once == f"before\n{START}\nnew\n\n{END}\nafter\n"
    assert filled(once, "new\n") == once


def test_a_table_stands_under_its_title(tmp_path: Path) -> None:
    from benchmarks.tables import speed

    (tmp_path / "online.md").write_text("One sample\n\n| a |\n|---|\n| 1 |\n")
    assert speed(tmp_path).startswith("### online\n\nOne sample.\n\n| a |")


@pytest.mark.parametrize("name", ["speed", "compute", "comparison", "serve", "start/paper"])
def test_pages_are_up_to_date(name: str) -> None:
    from benchmarks.tables import PAGES, ROOT, filled

    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert filled(page, PAGES[name]()) == page
