"""Entries that other packages offer through entry points."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from dsal.base import registry
from dsal.base.registry import Registry
from dsal.errors import DSALError, PluginError, UnknownNameError


def installed(folder: Path, package: str, points: str, module: str = "") -> None:
    """Lay a package into ``folder`` as an installer would: its module, and the record of its entry points."""
    record = folder / f"{package}-1.5.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (record / "entry_points.txt").write_text(f"[test.shapes]\n{points}\n")
    (folder / f"{package}.py").write_text(module)


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[type]]:
    """A registry with one entry of its own and ``tmp_path`` where packages are."""
    registry._installed.cache_clear()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Registry("shape", group="test.shapes")
    registry._installed.cache_clear()
    for name in ("shapes_one", "shapes_two"):
        sys.modules.pop(name, None)


def test_an_entry_is_loaded_when_it_is_asked_for(shapes: Registry[type], tmp_path: Path) -> None:
    shapes.register("circle")(int)
    installed(tmp_path, "shapes_one", "square = shapes_one:Square", "class Square: ...")
    assert shapes.names() == ("circle", "square")
    assert shapes.get("circle") is int
    assert "shapes_one" not in sys.modules
    square = shapes.get("square")
    assert (square.__module__, shapes.get("square")) == ("shapes_one", square)
    assert shapes.name_of(square) == "square"
    with pytest.raises(UnknownNameError, match="did you mean 'square'"):
        shapes.get("sqare")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("raise RuntimeError('no such luck')", "RuntimeError: no such luck"),
        ("import a_package_that_is_not_there", "a_package_that_is_not_there"),
        ("", "no attribute 'Square'"),
        ("Square = 3", "is 3, not a class"),
    ],
)
def test_one_that_cannot_be_loaded_names_its_package_when_asked_for(
    shapes: Registry[type], tmp_path: Path, module: str, reason: str
) -> None:
    installed(tmp_path, "shapes_one", "square = shapes_one:Square\ncube = shapes_two:Cube", module)
    installed(tmp_path, "shapes_two", "", "class Cube: ...")
    assert shapes.names() == ("cube", "square")
    assert shapes.get("cube").__name__ == "Cube"
    for _ in range(2):
        with pytest.raises(PluginError, match=f"shape 'square' of shapes_one 1.5 .*{reason}") as raised:
            shapes.get("square")
    assert isinstance(raised.value, DSALError)


def test_a_name_of_dsal_cannot_be_taken(shapes: Registry[type], tmp_path: Path) -> None:
    shapes.register("circle")(int)
    installed(tmp_path, "shapes_one", "circle = shapes_one:Circle", "class Circle: ...")
    with pytest.warns(UserWarning, match=r"shapes_one 1\.5 .* offers a shape 'circle'.* ignored"):
        assert shapes.get("circle") is int
    assert shapes.names() == ("circle",)


def test_a_name_that_two_packages_claim_is_nobodys(shapes: Registry[type], tmp_path: Path) -> None:
    for package in ("shapes_one", "shapes_two"):
        installed(tmp_path, package, f"square = {package}:Square", "class Square: ...")
    with pytest.raises(PluginError, match=r"several packages: shapes_one 1\.5 .*, shapes_two 1\.5"):
        shapes.get("square")


def test_every_kind_has_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    from dsal.analytic.activations import activations
    from dsal.analytic.expansion import expansions
    from dsal.backbones import ARCHITECTURES
    from dsal.data import DATASETS
    from dsal.methods import METHODS

    kinds = {"activations": activations, "backbones": ARCHITECTURES, "datasets": DATASETS}
    for kind, table in {**kinds, "expansions": expansions, "methods": METHODS}.items():
        points = EntryPoints([EntryPoint("tau", "math:tau", f"dsal.{kind}"), EntryPoint("pi", "math:pi", "dsal.other")])
        monkeypatch.setattr(registry, "_installed", lambda points=points: points)
        monkeypatch.setattr(table, "_found", None)
        assert "tau" in table.names()
        assert "pi" not in table.names()
        monkeypatch.undo()
