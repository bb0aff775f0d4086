"""The workflows: every action is pinned by a hash, with its version beside it, and a bot keeps them fresh."""

import re
from pathlib import Path

import pytest

GITHUB = Path(__file__).parents[2] / ".github"


@pytest.mark.parametrize("path", sorted((GITHUB / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_actions_are_pinned_by_hash(path: Path) -> None:
    for line in path.read_text().splitlines():
        if "uses:" in line:
            assert re.search(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_slow_tests_run_on_a_schedule() -> None:
    text = (GITHUB / "workflows" / "slow.yml").read_text()
    assert "cron:" in text
    assert "make slow" in text


def test_a_bot_updates_the_pins() -> None:
    text = (GITHUB / "dependabot.yml").read_text()
    assert "package-ecosystem: github-actions" in text
    assert "package-ecosystem: pip" in text
