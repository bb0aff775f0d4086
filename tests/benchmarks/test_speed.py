"""The benchmarks of speed: they run, and the recursion they race against is the authors' algorithm."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.parametrize("name", ["recursion", "accuracy", "phases", "width", "refit", "online"])
def test_each_leaves_a_table_numbers_and_a_picture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.speed.__main__ import main

    monkeypatch.setattr(sys, "argv", ["speed", name, "--small", "--out", str(tmp_path)])
    main()
    document = json.loads((tmp_path / f"{name}.json").read_text())
    assert document["table"]
    assert {"cpu", "threads", "commit", "scipy", "libraries", "load"} <= set(document["conditions"])
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    assert (tmp_path / f"{name}.md").read_text() in capsys.readouterr().out


def test_the_recursion_is_ours_on_the_authors_batches() -> None:
    """In exact arithmetic; which is why its accuracy can be measured without its cost."""
    from benchmarks.speed.contest import Recursion, batches, load, ours, phase_of

    data = load(small=True)
    method = ours(128)
    theirs = None
    for classes in (range(50), range(50, 75), range(75, 77)):
        for part in batches(phase_of(data, classes), 512):
            method.learn_rows(*part)
            if theirs is None:
                theirs = Recursion(method._learner.built().projection)
            theirs.learn_batch(*part)
    assert theirs is not None
    for recursive, ours_ in zip(theirs.w, method._learner.weights, strict=True):
        np.testing.assert_allclose(recursive, ours_, rtol=1e-6, atol=1e-7)
    assert (theirs.predict(data.test_x) == method.predict(data.test_x)).mean() > 0.999


def test_flops_as_counted_in_the_documentation() -> None:
    from benchmarks.speed.flops import ratio

    assert ratio(8192, 25) == pytest.approx(12.1, abs=0.1)
    assert ratio(8192, 50) == pytest.approx(16.3, abs=0.1)
