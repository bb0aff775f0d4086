"""Numbers on the pages are those of committed results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dsal.protocol.paper_numbers import paper_results

from .pages import ROOT


def results(name: str) -> Any:
    """A committed result of the benchmarks."""
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text(encoding="utf-8"))


def rows(page: str, start: str) -> list[list[str]]:
    """The rows of a page's tables whose first cell begins with some text, cells without emphasis."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip(" *`") for cell in line.strip().strip("|").split("|")] for line in lines if line[:1] == "|"]
    found = [row for row in cells if row[0].startswith(start)]
    assert found, f"{page} has no row {start!r}"
    return found


def test_the_readme_shows_the_committed_runs() -> None:
    runs = results("curves.json")["runs"]
    expected = []
    for ours in (runs["ds-al"], runs["paper"]):
        totals = [ours[f"{which}_accuracy"] for which in ("average", "last", "base", "new")]
        expected.append([ours["command"], str(ours["config"]["expansion_size"]), *(f"{total:.2f}" for total in totals)])
    assert rows("README.md", "dsal run") == expected
    published = next(r for r in paper_results("cifar100", 25) if (r.method, r.backbone) == ("DS-AL", "resnet32"))
    assert published.average is not None
    assert published.last is not None
    (row,) = rows("README.md", "DS-AL, from the paper")
    assert row[2:4] == [f"{published.average.mean:.2f}", f"{published.last.mean:.2f}"]


def test_the_papers_recipe() -> None:
    found = results("paper-recipe.json")
    (run,) = (run for run in found["runs"] if (run["method"], run["phases"]) == ("ds-al", 25))
    assert (found["average"], found["last"]) == (run["average"]["mean"], run["last"]["mean"])
    (row,) = rows("README.md", "[the paper's recipe]")
    first = run["seeds"].index(0)
    assert row[1:] == ["8192", *(f"{run[total]['values'][first]:.2f}" for total in ("average", "last", "base", "new"))]
    settings = {"expansion_size": 8192, "gamma": 0.1, "compensation": 0.6, "activation": "tanh"}
    assert settings.items() <= run["config"].items()


def test_the_picture_shows_what_the_readme_says() -> None:
    """DS-AL is above ridge regression on all data, everywhere."""
    runs = results("curves.json")["runs"]
    ours = dict(zip(runs["ds-al"]["classes_seen"], runs["ds-al"]["accuracy"], strict=True))
    joint = dict(zip(runs["joint-ridge"]["classes_seen"], runs["joint-ridge"]["accuracy"], strict=True))
    assert all(ours[classes] > accuracy for classes, accuracy in joint.items())


def test_novelty() -> None:
    starts = {"proxy": "proxy", "cifar100-features": "CIFAR-100 features", "omniglot-features": "Omniglot features"}
    for found in results("novelty.json")["rows"]:
        (row,) = rows("docs/photo-results.md", starts[found["data"]])
        areas = [f"{found[name]:.3f}" for name in ("logit", "distance", "both")]
        flagged = [f"{100 * found[name]:.1f}%" for name in ("known_flagged", "new_flagged")]
        assert row[1:] == [f"{found['known']}, {found['new']}", *areas, *flagged]


def test_few_images() -> None:
    """Two tables: the mean over the folders of each study, accuracy and calibration error."""
    studies = (("few-images.json", ("pets", "flowers")), ("few-images-confirmed.json", None))
    for number, (name, folders) in enumerate(studies):
        found = results(name)["folders"]
        for images in ("1", "2", "3", "5", "10", "20", "50"):
            row = [row for row in rows("docs/photo-results.md", images) if row[0] == images][number]
            chosen = [found[folder][images]["dsal"] for folder in folders or found if images in found[folder]]
            accuracy, error = (float(cell) for cell in row[1].split(", "))
            for shown, key, digits in ((accuracy, "accuracy", 1), (error, "calibration_error", 3)):
                mean = sum(one[key] for one in chosen) / len(chosen)
                assert abs(shown - mean) <= 0.51 * 10**-digits, (name, images, key)


def test_scaling_out() -> None:
    lines = [rows("docs/distributed.md", start) for start in ("base phase, 25,000", "1 process, 2", "2 processes, 1")]
    lines.append(rows("docs/distributed.md", "phase of ten classes"))
    of = {(1, 1): (lines[0][0], lines[3][0]), (1, 2): lines[1], (2, 1): lines[2]}
    for run in results("distributed.json")["runs"]:
        for row, phase in zip(of[run["processes"], run["threads"]], (run["base"], run["next"]), strict=True):
            names = ("accumulate_seconds", "seconds", "predicted_seconds")
            assert row[1:] == [f"{phase[name]:.1f}" for name in names]


def test_base_training() -> None:
    trials = [json.loads(line) for line in (ROOT / "benchmarks/results/proxy.jsonl").read_text().splitlines()]
    labels = ("crop and flip", "+ label smoothing", "+ TrivialAugment", "+ a quarter", "+ both")
    for label, trial in zip(labels, trials, strict=False):
        (row,) = rows("docs/training.md", label)
        assert row[1:] == [f"{value:.2f}" for value in trial["all"]]
    longer = {trial["name"]: trial for trial in trials if "blocks" in trial}
    starts = ("strong`, 30", "then `again", "strong`, features averaged over")
    for label, name in zip(starts, ("strong", "again", "strong, shift"), strict=True):
        (row,) = rows("docs/training.md", label)
        assert row[2:] == [f"{value:.2f}" for value in longer[name]["blocks"]]
    tried = results("distillation.json")
    text = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    assert f"reached {tried['teacher']['base_test_accuracy']:.2f}%" in text
    assert f"ended at {tried['student']['epochs'][-1]['held_out']:.1f}% of the held-out" in text
    rates = results("pretrain_throughput.json")["images_per_second"]
    (plain,) = rows("docs/training.md", "plain PyTorch loop")
    assert plain[1] == f"{rates['plain loop']:.0f}"


def test_equal_memory() -> None:
    for run in results("equal-memory.json")["runs"]:
        shown = [row for row in rows("docs/comparison.md", run["method"]) if row[1] == str(run["width"])]
        (row,) = [row for row in shown if len(row) == 7]
        totals = [run[f"{which}_accuracy"] for which in ("average", "last", "base", "new")]
        assert row[2:] == [f"{run['stored_bytes'] / 1e6:.1f}", *(f"{t['mean']:.2f} ± {t['std']:.2f}" for t in totals)]


def test_every_result_of_the_benchmarks_is_mentioned() -> None:
    texts = [path.read_text(encoding="utf-8") for folder in ("docs", "benchmarks") for path in source(ROOT / folder)]
    everything = "\n".join([(ROOT / "README.md").read_text(encoding="utf-8"), *texts])
    names = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json*")}
    assert [name for name in sorted(names) if not re.search(rf"\b{re.escape(name)}\b", everything)] == []


def source(folder: Path) -> list[Path]:
    """Pages and programs in a folder."""
    return [*folder.rglob("*.md"), *folder.rglob("*.py")]
