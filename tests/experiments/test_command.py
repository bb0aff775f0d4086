"""``dsal reproduce`` as it is called."""

from pathlib import Path

import pytest

from dsal.cli.reproduce import reproduce


def test_it_says_where_the_pages_are_and_goes_on_where_it_was(
    sample_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for what, trainings in ((["fig4"], "1/1"), (["fig4", "table2"], "2/2")):
        reproduce(what, out=tmp_path, dataset=str(sample_file), expansion_size=32, seeds="0,1", quick=True)
        printed = capsys.readouterr()
        pages = [Path(line) for line in printed.out.split()]
        assert [page.name for page in pages] == ["reproduction.md", "reproduction.html"]
        assert trainings in printed.err
    text = pages[0].read_text(encoding="utf-8")
    assert "## Table 2" in text
    assert "## Fig. 4" in text
