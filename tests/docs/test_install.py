"""The distribution is dsal-learn: what pages, errors and scripts suggest to install, and the wheel itself."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

from .pages import ROOT

TEXTS = {".md", ".py", ".toml", ".yml", ".yaml", ".txt", ".ipynb", ".cff", ".html", ".js", ""}
FOREIGN = re.compile(
    r"""install\s+(?:-\S+\s+)*['"`]?dsal(?![\w-]|\.\w)"""  # the index's dsal, a package of other people
    r"""|(?<![\w./-])dsal\[[a-z]"""  # an extra of it
    r"""|^\s*dependencies\s*=.*["']dsal["'\[<>=~]""",
    re.MULTILINE,
)


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in names.split("\0") if name]
    return [path for path in paths if path.suffix in TEXTS and path.is_file() and path != Path(__file__)]


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("pip install dsal", True), ("pip install -U 'dsal[lite]'", True), ("`dsal[serve]`", True),
        ('dependencies = ["dsal"]', True), ("pip install dsal-learn", False), ("pip install 'dsal-learn[lite]'", False),
        ("pip install dsal.whl", False), ("import dsal", False),
    ],
)  # fmt: skip
def test_the_rule_finds_the_foreign_name(text: str, foreign: bool) -> None:
    assert bool(FOREIGN.search(text)) == foreign


def test_nothing_suggests_to_install_somebody_elses_package() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    found = {
        path.relative_to(ROOT).as_posix(): match[0]
        for path in tracked()
        if (match := FOREIGN.search(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_the_distribution_brings_the_import_and_the_command() -> None:
    assert re.search(r'^name = "dsal-learn"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    installed = distribution("dsal-learn")
    assert [entry.value for entry in installed.entry_points if entry.name == "dsal"] == ["dsal.cli.main:main"]


@pytest.mark.slow
def test_a_wheel_of_a_clean_clone_runs_what_the_readme_shows(tmp_path: Path) -> None:
    def run(*command: object, cwd: Path = tmp_path) -> str:
        done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("git", "clone", "-q", ROOT, "clone")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", tmp_path / "clone")
    (wheel,) = (tmp_path / "dist").glob("dsal_learn-*.whl")
    venv.create(tmp_path / "fresh", with_pip=True)
    python = tmp_path / "fresh" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", f"{wheel}[lite,serve]")
    run(python, "-m", "dsal", "--version")
    run(python, "-m", "dsal", "run", "--quick", "--out", "runs")
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert float(run(python, "-c", example)) > 0.9
    assert "serve" in run(python, "-m", "dsal", "serve", "--help")
