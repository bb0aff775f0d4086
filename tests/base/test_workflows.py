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


def test_workflows_may_only_read() -> None:
    """The job that publishes alone has a right more, and runs nothing but pinned actions."""
    for path in (GITHUB / "workflows").glob("*.yml"):
        text = path.read_text()
        assert "\npermissions:\n  contents: read\n" in text, path.name
        assert text.count("permissions:") == (2 if path.name == "release.yml" else 1)
        assert "write" not in text.replace("id-token: write", "", 1), path.name
    publish = (GITHUB / "workflows" / "release.yml").read_text().partition("  publish:\n")[2]
    assert "id-token: write" in publish
    assert "run:" not in publish


def test_the_release_is_built_from_hashed_packages() -> None:
    commands = re.findall(
        r"run: (python -m .*?)(?: #.*)?$", (GITHUB / "workflows/release.yml").read_text(), re.MULTILINE
    )
    assert commands[:2] == [
        "python -m pip install --require-hashes -r packaging/build-requirements.txt",
        "python -m build --no-isolation",
    ]
    lines = (GITHUB.parent / "packaging" / "build-requirements.txt").read_text().splitlines()
    pins = [re.fullmatch(r"([\w.-]+)==[\w.]+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines if line[0] != "#"]
    names = {pin[1] for pin in pins if pin}
    assert len(names) == len(pins)
    project = (GITHUB.parent / "pyproject.toml").read_text()
    (wanted,) = re.findall(r"^requires = \[(.*)\]", project, re.MULTILINE)
    assert {*re.findall(r'"([\w-]+)', wanted), "build"} <= names


def test_slow_tests_run_on_a_schedule() -> None:
    text = (GITHUB / "workflows" / "slow.yml").read_text()
    assert "cron:" in text
    assert "make slow" in text


def test_a_bot_updates_the_pins() -> None:
    text = (GITHUB / "dependabot.yml").read_text()
    assert "package-ecosystem: github-actions" in text
    assert "package-ecosystem: pip" in text
