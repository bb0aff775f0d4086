"""The figure and the table of the README: accuracy while classes arrive, on the shipped CIFAR-100 features.

python -m benchmarks.curves --runs FOLDER    # collect finished runs into benchmarks/results/curves.json, then draw
python -m benchmarks.curves                  # draw docs/figures/accuracy.png from the committed results

The runs are those of `RUNS`, each made by `dsal run OPTIONS --out FOLDER/NAME`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dsal.protocol.paper_numbers import PaperResult, paper_results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "curves.json"
PICTURE = ROOT / "docs" / "figures" / "accuracy.png"
RUNS = {
    "ds-al": "",
    "paper": "--paper",
    "joint-ridge": "--method joint-ridge --phases 5",
    "sgd-head": "--method sgd-head --set learning_rate=0.001 --set epochs=3",  # as tuned for docs/comparison.md
}
"""Names of the runs, and their options of `dsal run`."""

INK, BLUE, GREY, RED = "#1f2430", "#3538cd", "#667085", "#c4320a"


def collected(folder: Path) -> dict[str, Any]:
    """Collect from the runs in a folder what the figure and the table show."""
    runs = {}
    for name, options in RUNS.items():
        found = json.loads((folder / name / "results.json").read_text(encoding="utf-8"))
        totals = ("average_accuracy", "last_accuracy", "base_accuracy", "new_accuracy")
        runs[name] = {
            "command": f"dsal run {options}".strip(),
            "seeds": found["seeds"],
            "classes_seen": [phase["classes_seen"] for phase in found["phases"]],
            "accuracy": [phase["accuracy"]["mean"] for phase in found["phases"]],
            **{total: found[total]["mean"] for total in totals},
            "config": found["config"],
            "provenance": {key: value for key, value in found["provenance"].items() if key != "backbone"},
        }
    return {"schema": 1, "runs": runs}


def paper() -> PaperResult:
    """Return the paper's result for DS-AL on CIFAR-100 with K = 25 and a ResNet-32."""
    found = paper_results("cifar100", 25)
    return next(result for result in found if (result.method, result.backbone) == ("DS-AL", "resnet32"))


def draw(runs: dict[str, Any]) -> Figure:
    """Draw the curves, each labelled directly, so that no legend is needed."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    ours, joint, plain = (runs[name] for name in ("ds-al", "joint-ridge", "sgd-head"))
    axes.plot(plain["classes_seen"], plain["accuracy"], color=GREY, linewidth=2)
    axes.plot(ours["classes_seen"], ours["accuracy"], color=BLUE, linewidth=2.5)
    axes.plot(joint["classes_seen"], joint["accuracy"], "o", color=INK, markerfacecolor="white", markersize=7)
    published = paper()
    assert published.average is not None
    assert published.last is not None
    axes.axhline(published.average.mean, color=RED, linewidth=1, linestyle=":")
    axes.plot([100], [published.last.mean], "D", color=RED, markersize=8)

    def name(x: float, y: float, text: str, colour: str, **given: Any) -> None:
        axes.annotate(text, (x, y), color=colour, fontsize=10, annotation_clip=False, va="center", **given)

    name(101.5, ours["accuracy"][-1] + 3, f"DS-AL, dsal run: {ours['last_accuracy']:.1f}", BLUE, weight="bold")
    name(101.5, joint["accuracy"][-1] - 1, f"ridge, all data: {joint['last_accuracy']:.1f}", INK)
    name(101.5, published.last.mean, f"DS-AL, paper, last: {published.last.mean:.1f}", RED)
    name(64, published.average.mean - 2.5, f"DS-AL, paper, average: {published.average.mean:.1f}", RED)
    name(101.5, plain["accuracy"][-1], f"linear head trained on\neach phase: {plain['last_accuracy']:.1f}", GREY)
    axes.set_xlim(49, 101)
    axes.set_ylim(0, 90)
    axes.set_xlabel("classes learned so far", color=INK)
    axes.set_ylabel("accuracy on all of them, %", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eaecf0", linewidth=0.8)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of finished runs, each in a subfolder named after it")
    folder = parser.parse_args().runs
    if folder is not None:
        RESULTS.write_text(json.dumps(collected(folder), indent=1) + "\n", encoding="utf-8")
    draw(json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]).savefig(PICTURE, dpi=150, metadata={"Software": None})
