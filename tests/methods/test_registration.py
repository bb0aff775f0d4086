"""A method is one file: its name and title are on its class, and it is imported when its name is used."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import dsal
from dsal.methods import METHODS, Method, find_methods
from dsal.report.run_pages import method_title

EXAMPLE = Path(__file__).parents[1] / "plugins" / "example" / "nearest_median.py"


def test_a_method_added_from_scratch_touches_one_file(tmp_path: Path) -> None:
    """The file of docs/plugins.md, put into a copy of the package, runs by its name and has its title."""
    package = tmp_path / "dsal"
    links = {"copy_function": os.symlink, "ignore": shutil.ignore_patterns("__pycache__")}
    shutil.copytree(Path(dsal.__file__).parent, package, **links)  # type: ignore[arg-type]
    shutil.copy(EXAMPLE, package / "methods" / "closed_form" / EXAMPLE.name)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    small = ("--features", "last", "--phases", "2", "--out", "out", "--no-report")
    run("-m", "dsal", "run", "--method", "nearest-median", "--set", "order=2", *small)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["method"] == "nearest-median"
    assert results["last_accuracy"]["mean"] > 20
    code = "from dsal.report.run_pages import method_title; print(method_title('nearest-median'))"
    assert run("-c", code).strip() == "Nearest median"


def test_one_method_does_not_import_the_others() -> None:
    code = "import sys, dsal; dsal.METHODS.names(); dsal.METHODS.get('lwf'); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    methods = {name for name in loaded if name.startswith(("dsal.methods.network.", "dsal.methods.closed_form."))}
    assert {name for name in methods if ".kit" not in name} == {"dsal.methods.network.lwf"}


def test_every_method_has_its_name_and_a_title_of_its_own() -> None:
    own = find_methods()
    classes = {name: METHODS.get(name) for name in own}
    assert all(cls.name == name and cls.title for name, cls in classes.items())
    assert len({cls.title for cls in classes.values()}) == len(own) == 37
    assert method_title("fetril-fc") == "FeTrIL-fc"


def test_a_subclass_of_another_package_has_not_its_parents_title(monkeypatch: object) -> None:
    class Mine(METHODS.get("ncm")):  # type: ignore[misc]
        """Without a name."""

    assert issubclass(Mine, Method)
    monkeypatch.setitem(METHODS._entries, "mine", Mine)  # type: ignore[attr-defined]
    assert method_title("mine") == "mine"
