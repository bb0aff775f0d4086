"""A package outside of dsal, really installed, as docs/plugins.md shows it."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsal.analytic.activations import activations
from dsal.base import registry
from dsal.methods import METHODS
from dsal.methods.checks import checks
from dsal.protocol.results import read_results

from .conftest import Call

EXAMPLE = Path(__file__).parents[1] / "plugins" / "example"
DOCS = Path(__file__).parents[2] / "docs" / "plugins.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example is installed."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "target"))
    shutil.copytree(EXAMPLE, source, dirs_exist_ok=True)  # building leaves files behind
    how = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *how, str(source)], check=True)
    return target


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the example, installed for this process and for those it starts."""
    tables = (METHODS, activations)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
    registry._installed.cache_clear()
    for table in tables:
        monkeypatch.setattr(table, "_found", None)
        monkeypatch.setattr(table, "_entries", dict(table._entries))
    yield importlib.import_module("nearest_median")
    registry._installed.cache_clear()


def test_the_page_shows_what_is_tested() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for name in ("nearest_median.py", "pyproject.toml"):
        assert (EXAMPLE / name).read_text(encoding="utf-8") in page


def test_it_runs_and_is_compared(installed: Any, call: Call, small: tuple[str, ...]) -> None:
    common = [text for text in small if text not in ("run", "--expansion-size", "32")]
    alone = call("run", *common, "--method", "nearest-median", "--set", "order=2", "--out", "alone")
    assert alone.code == 0, alone.err
    document = read_results(Path("alone"))
    assert (document["method"], document["config"]["order"]) == ("nearest-median", 2)
    assert 40 < document["last_accuracy"]["mean"] < 70
    both = call("compare", "nearest-median", *common, "--out", "both")  # each run is a process of its own
    assert both.code == 0, both.err
    (row,) = json.loads(Path("both/comparison.json").read_text())["runs"]
    assert (row["method"], row["exemplar_free"]) == ("nearest-median", True)
    wrong = call("run", *common, "--method", "nearest-median", "--set", "order=3")
    assert (wrong.code, "option order must be 1 or 2, got 3" in wrong.err) == (2, True)
    assert "did you mean 'nearest-median'" in call("run", *common, "--method", "nearest-mediam").err


def test_it_passes_the_checks(installed: Any) -> None:
    assert METHODS.get("nearest-median") is installed.NearestMedian
    assert activations.get("cube") is installed.cube
    for check in checks(installed.NearestMedian, options={"order": 2}):
        check()
