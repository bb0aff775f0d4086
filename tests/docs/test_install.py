"""The distribution is dsal-learn: what pages, errors and scripts suggest to install, and the wheel itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

from .pages import ROOT, python_blocks, shell_lines

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
@pytest.mark.usefixtures("photos")
def test_a_wheel_of_a_clean_clone_runs_what_the_readme_shows(tmp_path: Path) -> None:
    """Under its new name, alone in a fresh environment: commands for photos and features, and the Python example."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: object) -> str:
        done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("git", "clone", "-q", ROOT, "clone")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", tmp_path / "clone")
    (wheel,) = (tmp_path / "dist").glob("dsal_learn-*.whl")
    venv.create(tmp_path / "fresh", with_pip=True)
    bin_ = tmp_path / "fresh" / ("Scripts" if sys.platform == "win32" else "bin")
    run(bin_ / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", f"{wheel}[lite,serve]")
    assert "dsal_learn" in run(
        bin_ / "python", "-c", "from importlib.metadata import files; print(*files('dsal-learn'))"
    )

    readme = ROOT / "README.md"
    (example,) = python_blocks(readme)
    assert float(run(bin_ / "python", "-c", example)) > 0.9
    shown = [line.split() for line in shell_lines(readme) if line.startswith("dsal ")]
    digits = "from sklearn.datasets import load_digits; import numpy as np; x, y = load_digits(return_X_y=True)"
    run(bin_ / "python", "-c", f"{digits}; np.savez('features.npz', train_x=x, train_y=y, test_x=x, test_y=y)")
    told = {}
    for words in shown:
        if words[1] in ("learn", "predict", "suggest") or "features.npz" in words:
            told[" ".join(words[1:])] = run(bin_ / "dsal", *words[1:])
        elif words[1] != "serve":  # (hours of work)
            run(bin_ / "dsal", words[1], "--help")
    assert len(told) == 5
    assert told["predict m.dsal photo.jpg"].split("\n")[0]
    run(bin_ / "dsal", "run", "--quick")
    assert ["dsal", "serve"] in shown
    server = subprocess.Popen([bin_ / "dsal", "serve", "--port", "0"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split("#")[0].strip()
        assert b"<title>" in urllib.request.urlopen(address, timeout=60).read()
    finally:
        server.terminate()
        server.wait(30)
