"""Importing the package costs little and does nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dsal


def run(code: str) -> Any:
    output = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True).stdout
    return json.loads(output)


def test_import_brings_nothing_but_what_it_needs() -> None:
    """`import dsal` loads no other package; all public names together load those of the field and none for the rest."""
    code = """
import json, sys
def packages():
    return sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))
before = packages()
import dsal
bare = packages()
for name in dsal.__all__:
    getattr(dsal, name)
print(json.dumps([before, bare, packages()]))
"""
    before, bare, everything = run(code)
    assert set(bare) - set(before) == {"dsal"}
    assert {"torch", "numpy", "scipy", "sklearn"} <= set(everything)
    others = {"matplotlib", "typer", "onnx", "onnxruntime", "torchvision", "tensorboard", "fastapi"}
    assert not others & set(everything)  # (scikit-learn loads pandas and rich where they are installed)


def test_adapters_are_not_even_looked_for() -> None:
    """No public name, and not the command line, asks for an adapter's package; this finds out without any installed."""
    code = """
import json, sys
asked = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        asked.append(name)
sys.meta_path.insert(0, Watch())
import dsal
for name in dsal.__all__:
    getattr(dsal, name)
import dsal.cli.main
print(json.dumps(asked))
"""
    packages = {"flwr", "mlflow", "river", "avalanche", "capymoa", "huggingface_hub", "transformers", "open_clip"}
    asked = run(code)
    assert "dsal.cli.main" in asked
    ours = [name for name in asked if name.startswith("dsal.integrations")]
    assert (ours, packages & {name.partition(".")[0] for name in asked}) == ([], set())


def test_the_core_dependencies_stay_what_they_are() -> None:
    """The packages that ``pip install`` brings without an extra."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'^    "([\w-]+)', text.partition("\ndependencies = [")[2].partition("\n]")[0], re.MULTILINE)
    asked_for = {"torch", "numpy", "scipy", "scikit-learn", "safetensors", "pillow", "matplotlib", "typer", "rich"}
    brought_along = {"threadpoolctl", "jinja2", "markupsafe", "tomli", "tomli-w"}  # by those, or as small as a format
    assert set(listed) == asked_for | brought_along


def test_import_starts_no_threads_and_touches_no_files() -> None:
    """Nothing is written, nothing but Python modules is read, and there is one thread before and after."""
    code = """
import json, os, sys, threading
touched = []
code = (".py", ".pyc", ".so", ".pth")
def watch(event, arguments):
    opened = event == "open" and not str(arguments[0]).endswith(code)
    if opened or event.startswith(("os.mkdir", "os.rename", "os.remove", "socket", "subprocess")):
        touched.append([event, str(arguments[0])])
sys.addaudithook(watch)
import dsal
tasks = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
print(json.dumps([touched, threading.active_count(), tasks, "torch" in sys.modules]))
"""
    touched, threads, tasks, torch_too = run(code)
    assert touched == []
    assert threads == 1
    assert tasks == 1
    assert not torch_too  # imported with the first name that needs it


def test_public_names_are_there_and_no_others() -> None:
    for name in dsal.__all__:
        assert getattr(dsal, name).__doc__
    assert set(dsal.__all__) <= set(dir(dsal))
    assert not hasattr(dsal, "numpy")
