"""The figure and the table of docs/compute.md, from benchmarks/results/compute.json.

python -m benchmarks.compute_figure
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dsal.methods import METHODS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "compute.json"
PICTURE = ROOT / "docs" / "figures" / "compute.png"
INK, GREY = "#1f2430", "#667085"
COLOURS = {  # by what a method keeps of old images
    "none, closed form": "#3538cd",
    "none": "#b54708",
    "20 images a class": "#067647",
    "all images": INK,
}
CLOSED_FORM, ALL_IMAGES = ("ds-al", "acil"), ("joint-network",)
EXEMPLARS = ("icarl", "bic", "lucir", "podnet", "foster", "lucir-aanets", "icarl-rmm", "rmm")
READ_OUT = "last, one view"


def kept(method: str) -> str:
    """Return what a method keeps of old images."""
    if method in CLOSED_FORM:
        return "none, closed form"
    if method in ALL_IMAGES:
        return "all images"
    return "20 images a class" if method in EXEMPLARS else "none"


def curves(runs: list[dict[str, Any]], phases: int, features: str = READ_OUT) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of each method at K, by budget; the first seed stands for all in the figure."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in sorted(runs, key=lambda run: run["epochs"]):
        if (run["phases"], run["features"], run["seed"]) == (phases, features, 0):
            found.setdefault(run["method"], []).append(run)
    return found


def draw(runs: list[dict[str, Any]], phases: int = 5) -> Figure:
    """Draw average and last accuracy over seconds, one curve per method, labelled at its end."""
    figure = Figure(figsize=(8, 9.5), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    lines = curves(runs, phases)
    for axes, total in zip(panels, ("average", "last"), strict=True):
        for method, points in lines.items():
            colour, closed = COLOURS[kept(method)], method in CLOSED_FORM
            x, y = ([point[key] for point in points] for key in ("seconds", total))
            axes.plot(x, y, "D" if closed else "o-", color=colour, markersize=9 if closed else 5, linewidth=1.6)
        if "ds-al" in lines:
            axes.axhline(lines["ds-al"][0][total], color=COLOURS["none, closed form"], linewidth=1, linestyle=":")
        axes.set_xscale("log")
        axes.set_ylabel(f"{total} accuracy, %", color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#eaecf0", linewidth=0.8)
        _label(axes, {method: points[-1] for method, points in lines.items()}, total)
    panels[-1].set_xlabel("seconds of one processor thread, all phases, log scale", color=INK)
    for name, colour in COLOURS.items():
        panels[0].plot([], [], "o", color=colour, label=f"old images kept: {name}")
    panels[0].legend(loc="lower left", fontsize=9, frameon=False)
    return figure


def _label(axes: Axes, ends: dict[str, dict[str, Any]], total: str) -> None:
    """Write each method's name to the right of the panel, at the height of its end, without overlaps."""
    low, high = axes.get_ylim()
    gap, position = (high - low) / 26, low
    for method, point in sorted(ends.items(), key=lambda item: item[1][total]):
        position = max(position + gap, point[total])
        axes.annotate(
            f"{METHODS.get(method).title or method}  {point[total]:.1f}",
            (point["seconds"], point[total]),
            (1.02, position),
            textcoords=axes.get_yaxis_transform(),
            color=COLOURS[kept(method)],
            fontsize=10,
            va="center",
            weight="bold" if method == "ds-al" else None,
            arrowprops={"arrowstyle": "-", "color": "#d0d5dd", "linewidth": 0.7, "shrinkB": 4},
        )


def table(document: dict[str, Any]) -> str:
    """Return all runs as Markdown tables, one for each K, and the learning rates that were chosen."""
    parts = []
    for phases in sorted({run["phases"] for run in document["runs"]}):
        runs = [run for run in document["runs"] if run["phases"] == phases]
        lines = [
            f"**K = {phases}**\n",
            "| method | old images kept | epochs | read-out | seconds | of these in phase 0 | average | last | base "
            "| new | other read-out: average | last |",
            "|---|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for run in sorted(runs, key=lambda run: (-_best(runs, run), run["method"], run["features"], run["epochs"])):
            other = next(iter(run["other_readouts"].items()), None)
            beside = f"{other[0]} {other[1]['average']:.2f} | {other[1]['last']:.2f}" if other else "| "
            words = (run["method"], kept(run["method"]), str(run["epochs"]), run["features"])
            figures = (f"{run[key]:.0f}" for key in ("seconds", "base_seconds"))
            percent = (f"{run[key]:.2f}" for key in ("average", "last", "base", "new"))
            lines.append(f"| {' | '.join((*words, *figures, *percent, beside))} |")
        parts.append("\n".join(lines))
    chosen = [
        "| method | learning rates tried: accuracy on the proxy |",
        "|---|---|",
        *(
            f"| {method} | "
            + "; ".join(
                f"{trial['options']['lr']:.2g}: {trial['accuracy']:.2f}"
                for trial in document["trials"]
                if trial["method"] == method
            )
            + " |"
            for method in dict.fromkeys(trial["method"] for trial in document["trials"])
        ),
    ]
    origin = document["environment"]
    parts += [
        "\n".join(chosen),
        f"dsal {origin['dsal']}, torch {origin['torch']}, {origin['cpu']}, one thread, bfloat16.",
    ]
    return "\n\n".join(parts) + "\n"


def _best(runs: list[dict[str, Any]], run: dict[str, Any]) -> float:
    """Return the best average accuracy of a run's method with its features."""
    same = [other for other in runs if (other["method"], other["features"]) == (run["method"], run["features"])]
    return max(float(other["average"]) for other in same)


if __name__ == "__main__":
    draw(json.loads(RESULTS.read_text(encoding="utf-8"))["runs"]).savefig(PICTURE, dpi=120, metadata={"Software": None})
