"""The figures as files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from dsal.report.page import build_report

KEYS = ("accuracy", "stability", "timing", "confusion")


def test_png_and_pdf_of_every_figure(report: Path) -> None:
    folder = report.parent / "figures"
    assert {path.name for path in folder.iterdir()} == {f"{key}.{kind}" for key in KEYS for kind in ("png", "pdf")}
    for key in KEYS:
        assert (folder / f"{key}.pdf").read_bytes().startswith(b"%PDF-")
        with Image.open(folder / f"{key}.png") as image:
            assert min(image.size) > 600
            assert np.unique(np.asarray(image.convert("L"))).size > 20  # not empty


def test_the_same_runs_give_the_same_files(runs: dict[str, Path], tmp_path: Path) -> None:
    one, two = build_report([runs["k5"]], tmp_path / "a"), build_report([runs["k5"]], tmp_path / "b")
    assert one.read_bytes() == two.read_bytes()
    for path in (tmp_path / "a/figures").iterdir():
        assert path.read_bytes() == (tmp_path / "b/figures" / path.name).read_bytes()


def test_matplotlib_is_left_as_it_was(runs: dict[str, Path], tmp_path: Path) -> None:
    code = f"""
import sys, matplotlib
matplotlib.rcParams["backend"] = "svg"
before = dict(matplotlib.rcParams)
from pathlib import Path
from dsal.report.page import build_report
build_report([Path({str(runs["k5"])!r})], Path({str(tmp_path)!r}))
assert dict(matplotlib.rcParams) == before
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
