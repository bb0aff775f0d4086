"""``dsal compare``, as a user sees it."""

import gc
import importlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.protocol.same import comparable

from dsal.cli.processes import run_child
from dsal.data import FeatureSet
from dsal.protocol.results import read_results

from .conftest import Call

compare_module = importlib.import_module("dsal.cli.compare")


def test_methods_side_by_side_resumed_and_asked_again(call: Call, sample_file: Path, tmp_path: Path) -> None:
    options = ("--dataset", sample_file, "--expansion-size", "64", "--out", "out", "--no-report")
    first = call("compare", "ncm", "acil", "--phases", "5", "--seeds", "0,1", *options)
    assert first.code == 0, first.err
    assert "K = 5" in first.out
    lines = [line.split() for line in first.out.splitlines()]
    ours = {line[0]: line for line in lines if line and line[0] in ("ncm", "acil")}
    assert set(ours) == {"ncm", "acil"}
    assert "±" in ours["acil"][1]
    assert "±" not in ours["ncm"][1]  # draws nothing, runs once
    assert ours["ncm"][-1] == "yes"
    assert "ACIL, paper (ResNet-32)" in first.out
    assert "FeTrIL" not in first.out  # was not asked for

    comparison = json.loads((tmp_path / "out/comparison.json").read_text())
    by_method = {run["method"]: run for run in comparison["runs"]}
    chosen = comparison["tuning"]["acil"]["chosen"]["gamma"]
    assert by_method["acil"]["config"]["gamma"] == chosen
    results = read_results(tmp_path / "out/k5/acil")
    assert by_method["acil"]["average_accuracy"] == results["average_accuracy"]
    assert by_method["acil"]["stored_bytes"] == results["stored_bytes"]

    # A run of the comparison is the run that its configuration stands for.
    alone = call("run", "--config", tmp_path / "out/k5/acil/config.toml", "--out", "alone", "--no-report")
    assert alone.code == 0
    assert comparable(read_results(tmp_path / "alone")) == comparable(results)

    # Stopped before the second method: only that one is run, all else is remembered.
    (tmp_path / "out/k5/ncm/results.json").unlink()
    again = call("compare", "--resume", "--out", "out", "--no-report", "--json")
    assert again.code == 0, again.err
    assert "acil, K = 5: already done" in again.err
    assert "ncm, K = 5: already done" not in again.err
    assert "tuning" not in again.err
    assert [run["last_accuracy"] for run in json.loads(again.out)["runs"]] == [
        run["last_accuracy"] for run in comparison["runs"]
    ]

    # Another question is not answered with these results, nor written over them.
    other = call("compare", "ncm", "--phases", "5", "--base-classes", "60", *options)
    assert other.code == 1
    assert "k5/ncm failed" in other.err
    assert read_results(tmp_path / "out/k5/ncm")["config"]["base_classes"] == 50


def test_few_shots_with_a_report_and_without_the_papers_numbers(call: Call, sample_file: Path, tmp_path: Path) -> None:
    options = ("--dataset", sample_file, "--phases", "5", "--expansion-size", "16", "--no-tune")
    few = call("compare", "sgd-head", "acil", "--shots", "2", *options)
    assert few.code == 0, few.err
    assert "paper" not in few.out
    report = (tmp_path / "runs/compare/k5/report.html").read_text(encoding="utf-8")
    assert "<h1>ACIL and SGD head on CIFAR-100</h1>" in report  # the best first
    assert not (tmp_path / "runs/compare/tuning.json").exists()


def test_mistakes_are_told_before_anything_is_run(call: Call, sample_file: Path, tmp_path: Path) -> None:
    options = ("--dataset", str(sample_file), "--out", "out")
    unknown = call("compare", "ncm", "fetrill", *options)
    assert unknown.code == 2
    assert "did you mean 'fetril'" in unknown.err
    too_many = call("compare", "ncm", "--phases", "5,51", *options)
    assert too_many.code == 2
    assert "51" in too_many.err
    text = call("compare", "ncm", "--phases", "five", *options)
    assert text.code == 2
    assert "5,25,50" in text.err
    assert not list(tmp_path.glob("out/k*"))


def test_no_data_are_held_while_a_child_loads_its_own(
    call: Call, sample_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def counted(arguments: Sequence[str]) -> int:
        gc.collect()
        held.append(sum(type(thing) is FeatureSet for thing in gc.get_objects()))
        return run_child(arguments)

    monkeypatch.setattr(compare_module, "run_child", counted)
    gc.collect()
    before = sum(type(thing) is FeatureSet for thing in gc.get_objects())  # of other tests
    options = ("--dataset", sample_file, "--phases", "5", "--no-tune", "--no-report", "--out", tmp_path / "out")
    assert call("compare", "ncm", "slda", *options).code == 0
    assert held == [before, before]
