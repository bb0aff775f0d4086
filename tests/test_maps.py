"""The pages that lead into the code point at code that exists, and the equations they name are cited there."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
LINK = re.compile(r"`(dsal(?:\.\w+)*):([\w.]+)`")


@pytest.mark.parametrize("page", ["mathematics.md", "architecture.md"])
def test_every_name_on_the_page_is_in_the_code(page: str) -> None:
    links = LINK.findall((DOCS / page).read_text(encoding="utf-8"))
    assert len(links) > 10
    for module, name in links:
        assert attrgetter(name)(import_module(module)) is not None


def test_the_lines_of_an_equation_cite_it() -> None:
    rows = re.findall(r"^\| ([^|]*\(1[1359]\)[^|]*) \|[^|]*\| ([^|]*) \|$", (DOCS / "mathematics.md").read_text(), re.M)
    cited = {number: code for numbers, code in rows for number in re.findall(r"\(1[1359]\)", numbers)}
    assert set(cited) == {"(11)", "(13)", "(15)", "(19)"}
    for number, code in cited.items():
        module, name = LINK.findall(code)[0]
        assert number in inspect.getsource(attrgetter(name)(import_module(module))), number


def test_a_newcomer_finds_each_part_in_one_step() -> None:
    """From README to the map, and from the map to Theorem 1, compensation, cleansing, a method, and the runner."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert "(docs/architecture.md)" in readme
    assert "(docs/mathematics.md)" in readme
    links = {name for _, name in LINK.findall((DOCS / "architecture.md").read_text(encoding="utf-8"))}
    assert links >= {"Ridge.update", "Learner.learn_streams", "cleansed", "DSAL", "run_experiment"}


def test_every_room_is_on_the_map() -> None:
    import dsal

    root = Path(next(iter(dsal.__path__)))
    rooms = {p.name.removesuffix(".py") for p in root.iterdir() if p.is_dir() or p.suffix == ".py"}
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    missing = [room for room in sorted(rooms) if not room.startswith("_") and f"`{room}`" not in page]
    assert not missing, f"docs/architecture.md does not mention {', '.join(missing)}"
