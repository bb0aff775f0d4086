"""The page and the figure of accuracy against computation, from the results of ``compute.py``.

python -m benchmarks.compute_page    # draw docs/figures/compute.png; ``python -m benchmarks.tables`` writes the page
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import harmonic_mean, mean, stdev
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from dsal.methods import METHODS
from dsal.protocol.paper_numbers import nearest_result, paper_results

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "compute.json"
PICTURE = ROOT / "docs" / "figures" / "compute.png"
PHASES, BUDGETS, LONG_BUDGET = 5, (1, 3, 10), 30
ASKED = ("finetune", "lwf", "ewc", "pass", "ssre", "icarl", "bic", "lucir", "podnet", "podnet-aanets", "foster", "rmm",
         "joint-network")  # fmt: skip
ASKED_LONG = ("lwf", "icarl", "lucir", "podnet", "foster")
ORDER = (("finetune", "ewc"), ("finetune", "lwf"), ("ewc", "icarl"), ("lwf", "icarl"), ("icarl", "lucir"),
         ("icarl", "podnet"))  # fmt: skip
"""Pairs of methods; in the literature, the second is ahead on average."""
PAPER = {"podnet-aanets": "aanets"}
"""Methods that have a different name in the paper's table."""
CLOSED_FORM = ("ds-al", "acil")
PLAIN = "last, one view"
"""What methods that train the network read, and DS-AL for a comparison on equal terms."""
TOTALS = {"start": "after phase 0", "average": "average", "last": "last", "base": "base", "new": "new"}
INK, BLUE, GREY = "#1f2430", "#3538cd", "#667085"
NO_IMAGES = ("#107569", "#4ca30d", "#099250", "#0e7090", "#3b7c0f")
WITH_IMAGES = ("#c4320a", "#dc6803", "#c11574", "#a15c07", "#e31b54", "#9f1ab1", "#912018")

TICKS = (10, 30, 100, 300, 1000, 3000, 10000, 30000)
LEGEND = (
    Line2D([], [], color=BLUE, marker="*", markersize=13, linestyle="", label="DS-AL, one pass, no images"),
    Line2D([], [], color=GREY, marker="D", markersize=5, linestyle="", label="ACIL, same features"),
    Line2D([], [], color=INK, marker="o", markersize=4, label="keeps images"),
    Line2D([], [], color=INK, marker="o", markersize=4, linestyle="--", label="keeps no images"),
)

Row: TypeAlias = dict[str, Any]


def read() -> Row:
    return json.loads(RESULTS.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def means(runs: Iterable[Row]) -> list[Row]:
    """Return one row for each method, K, budget and kind of features: means over seeds, and deviations as ``std``."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for run in runs:
        groups.setdefault(tuple(run[key] for key in ("method", "phases", "epochs", "features")), []).append(run)
    rows = []
    for same in groups.values():
        row = {**same[0], "seeds": len(same), "std": {}}
        for key in (*TOTALS, "seconds", "base_seconds"):
            values = [run[key] for run in same]
            row[key] = mean(values)
            row["std"][key] = stdev(values) if len(values) > 1 else None
        rows.append(row)
    return rows


def best_first(trials: Iterable[Row]) -> list[Row]:
    """Sort trials by the harmonic mean of the accuracies of old and new classes."""
    return sorted(trials, key=lambda trial: -harmonic_mean((trial["base"], trial["new"])))


def keeps_images(method: str) -> bool:
    """Return whether a method stores images."""
    return method == "joint-network" or not METHODS.get(method)().exemplar_free


def curves(rows: Iterable[Row], phases: int = PHASES) -> dict[str, list[Row]]:
    """Return the rows of each method that trains the network, cheapest first; the best method comes first."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["seconds"]):
        if row["phases"] == phases and row["method"] not in CLOSED_FORM:
            found.setdefault(row["method"], []).append(row)
    return dict(sorted(found.items(), key=lambda item: -item[1][-1]["average"]))


# The figure.


def draw(rows: Sequence[Row]) -> Figure:
    """Draw average and last accuracy over seconds: a labelled curve for each method that trains the network."""
    here = [row for row in rows if row["phases"] == PHASES]
    figure = Figure(figsize=(8, 10), layout="constrained")
    for axes, total in zip(figure.subplots(2, sharex=True), ("average", "last"), strict=True):
        _draw_panel(axes, here, total)
    axes.set_xlabel("seconds of one processor core, for all phases", color=INK)
    axes.legend(handles=LEGEND, loc="center left", fontsize=9, frameon=False)
    return figure


def _draw_panel(axes: Axes, rows: Sequence[Row], total: str) -> None:
    axes.set_xscale("log")
    axes.set_xticks([tick for tick in TICKS if tick < 2 * max(row["seconds"] for row in rows)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(f"{total} accuracy, %", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#eaecf0", linewidth=0.8)
    trained = curves(rows)
    colours = {True: iter(WITH_IMAGES), False: iter(NO_IMAGES)}
    for row in (row for row in rows if row["method"] in CLOSED_FORM):
        marker, size, colour = ("*", 13, BLUE) if row["method"] == "ds-al" else ("D", 5, GREY)
        axes.plot([row["seconds"]], [row[total]], marker, color=colour, markersize=size)
        if row["method"] == "ds-al":
            axes.axhline(row[total], color=BLUE, linewidth=0.8, linestyle=":", zorder=0)
            place, side = ((8, -13), "left") if row["features"] == PLAIN else ((-10, 5), "right")
            axes.annotate(f"DS-AL, {row['features']}: {row[total]:.1f}", (row["seconds"], row[total]), place, ha=side,
                          textcoords="offset points", color=BLUE, fontsize=9, weight="bold")  # fmt: skip
    ends = []
    for method in (name for name in ASKED if name in trained):
        line, kept = trained[method], keeps_images(method)
        colour = INK if method == "joint-network" else next(colours[kept])
        axes.plot([row["seconds"] for row in line], [row[total] for row in line], "-" if kept else "--", color=colour,
                  marker="o", markersize=4, linewidth=1.6)  # fmt: skip
        ends.append((line[-1], METHODS.get(method).title, colour))
    low, high = axes.get_ylim()
    right = 1.25 * max(row["seconds"] for row in rows)
    places = apart([row[total] for row, *_ in ends], (high - low) / 26)
    for (row, title, colour), place in zip(ends, places, strict=True):
        axes.annotate(title, (row["seconds"], row[total]), (right, place), color=colour, fontsize=9, va="center",
                      annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.5})  # fmt: skip


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Return heights at least ``gap`` apart, in the same order, near the given ones."""
    order = sorted(range(len(heights)), key=lambda number: heights[number])
    places = list(heights)
    for _ in range(200):
        for low, high in pairwise(order):
            overlap = gap - (places[high] - places[low])
            if overlap > 1e-9:
                places[low] -= overlap / 2
                places[high] += overlap / 2
    return places


# The page.


def page(document: Row) -> str:
    """Return what was found, as Markdown."""
    rows = means(document["runs"])
    parts = [part for phases in sorted({row["phases"] for row in rows}) for part in _of_phases(rows, phases)]
    return "\n\n".join([*parts, _missing(rows), _chosen(document["trials"]), _origin(document["environment"])]) + "\n"


def _of_phases(rows: list[Row], phases: int) -> list[str]:
    here = [row for row in rows if row["phases"] == phases]
    parts = [f"## K = {phases}", _accuracies(here), _passed(here)]
    if phases == PHASES:
        parts += [_flattening(here), _order(here), "### Other read-outs", _readouts(here)]
    return parts


def _accuracies(rows: list[Row]) -> str:
    heads = ("method", "images kept", "reads", "epochs", "seconds", *TOTALS.values(), "paper: average", "paper: last")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|" + "---:|" * (len(heads) - 3)]
    single = sorted((row for row in rows if row["method"] in CLOSED_FORM), key=lambda row: -row["average"])
    for row in [*single, *(row for line in curves(rows, rows[0]["phases"]).values() for row in line)]:
        paper = nearest_result(
            paper_results("cifar100", row["phases"], PAPER.get(row["method"], row["method"])), "resnet32"
        )
        own = paper if paper is not None and paper.backbone == "resnet32" else None
        published = [
            "" if own is None or (value := getattr(own, total)) is None else f"{value.mean:.2f}"
            for total in ("average", "last")
        ]
        kept = "all" if row["method"] == "joint-network" else "yes" if keeps_images(row["method"]) else "no"
        cells = [METHODS.get(row["method"]).title, kept, row["features"], str(row["epochs"]), f"{row['seconds']:,.0f}",
                 *(shown(row, total) for total in TOTALS), *published]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(row: Row, total: str) -> str:
    """Return a mean, with its deviation if there are several seeds."""
    deviation = row["std"][total]
    return f"{row[total]:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _passed(rows: list[Row]) -> str:
    """Say which methods pass DS-AL, and at which budget first."""
    texts = []
    for ours in (row for row in rows if row["method"] == "ds-al"):
        ahead = []
        for total in ("average", "last"):
            for line in curves(rows, ours["phases"]).values():
                better = [row for row in line if row[total] > ours[total]]
                if better:
                    first = better[0]
                    times = first["seconds"] / ours["seconds"]
                    budget = f"{_epochs(first['epochs'])} a phase, {times:.1f} times its seconds"
                    ahead.append(f"{METHODS.get(first['method']).title} ({total} {first[total]:.2f}; {budget})")
        what = f"DS-AL with {ours['features']} ({ours['average']:.2f} / {ours['last']:.2f}, {ours['seconds']:,.0f} s)"
        texts.append(
            f"- {what} is passed by {'; '.join(ahead)}." if ahead else f"- {what} is passed by no method, at no budget."
        )
    return "\n".join(texts)


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def _flattening(rows: list[Row]) -> str:
    """Say what each method gained by its last step in budget."""
    steps = []
    for method, line in curves(rows).items():
        if len(line) > 1:
            first, last = line[-2:]
            gains = " / ".join(f"{last[total] - first[total]:+.1f}" for total in ("average", "last"))
            budgets = f"{first['epochs']} to {last['epochs']} epochs"
            times = f"{last['seconds'] / first['seconds']:.1f} times the seconds"
            steps.append(f"{METHODS.get(method).title} {gains} ({budgets}, {times})")
    return f"What the last step in budget brought, average / last: {'; '.join(steps)}."


def _order(rows: list[Row]) -> str:
    """Say whether the methods are in the order of the literature, at the largest budget that both have."""
    by_budget = {(row["method"], row["epochs"]): row for row in rows}
    right, wrong = 0, []
    for low, high in ORDER:
        both = [epochs for method, epochs in by_budget if method == low and (high, epochs) in by_budget]
        if both:
            worse, better = by_budget[low, max(both)], by_budget[high, max(both)]
            right += worse["average"] < better["average"]
            if worse["average"] >= better["average"]:
                wrong.append(_out_of_order(worse, better))
    text = "The literature's order is fine-tuning < EWC, LwF < iCaRL < LUCIR, PODNet, by average accuracy. Of its "
    return f"{text}{right + len(wrong)} pairs here, {right} are in it" + (
        f"; not {'; '.join(wrong)}." if wrong else "."
    )


def _out_of_order(first: Row, second: Row) -> str:
    """Show the accuracies of two methods, and those with each read-out that both have."""
    titles = [METHODS.get(row["method"]).title for row in (first, second)]
    text = f"{titles[0]} {first['average']:.2f}, {titles[1]} {second['average']:.2f} at {_epochs(first['epochs'])}"
    ours, theirs = _by_readout(first), _by_readout(second)
    same = [f"with the {name} of both {ours[name]:.2f}, {theirs[name]:.2f}" for name in ours if name in theirs]
    start = f"after phase 0 {first['start']:.2f}, {second['start']:.2f}"
    return f"{text} ({'; '.join([start, *(same if len(same) > 1 else [])])})"


def _by_readout(row: Row) -> dict[str, float]:
    """Return the average accuracies with the head and with the nearest mean of kept images, where a method has them."""
    names = {"cnn": "head", "nme": "nearest mean"}
    own = "nearest mean" if "cnn" in row["other_readouts"] else "head"
    return {own: row["average"]} | {
        names[name]: other["average"] for name, other in row["other_readouts"].items() if name in names
    }


def _readouts(rows: list[Row]) -> str:
    lines = [
        "| method | epochs | its own | " + " | ".join(READOUTS.values()) + " |",
        "|---|---:|---:|" + "---:|" * len(READOUTS),
    ]
    for line in curves(rows).values():
        row = line[-1]
        others = [row["other_readouts"].get(name) for name in READOUTS]
        cells = ["" if other is None else f"{other['average']:.2f} / {other['last']:.2f}" for other in others]
        own = f"{row['average']:.2f} / {row['last']:.2f}"
        lines.append(f"| {METHODS.get(row['method']).title} | {row['epochs']} | {own} | {' | '.join(cells)} |")
    return "\n".join(lines)


READOUTS = {
    "cnn": "head instead",
    "nme": "nearest mean of kept images instead",
    "mirror": "its own, image and mirror image",
}


def _missing(rows: list[Row]) -> str:
    """Say which runs were asked for and are not there."""
    there = {(row["method"], row["epochs"]) for row in rows if row["phases"] == PHASES}
    asked = {method: [*BUDGETS, *([LONG_BUDGET] if method in ASKED_LONG else [])] for method in ASKED}
    gaps = {
        method: [epochs for epochs in budgets if (method, epochs) not in there] for method, budgets in asked.items()
    }
    parts = [
        f"{METHODS.get(method).title} at {', '.join(map(str, epochs))}" for method, epochs in gaps.items() if epochs
    ]
    return (
        f"Not run, K = {PHASES}, epochs a phase: {'; '.join(parts)}."
        if parts
        else "Every run that was planned is here."
    )


def _chosen(trials: list[Row]) -> str:
    """Show the best trial of each method on the proxy, and the others."""
    lines = [
        "## What was chosen on the proxy",
        "",
        "| method | phases x epochs | chosen | old / new | others tried |",
        "|---|---|---|---:|---|",
    ]
    for method in dict.fromkeys(trial["method"] for trial in trials):
        own = [trial for trial in trials if trial["method"] == method]
        best, *others = best_first(own)
        tried = "; ".join(f"{_setting(trial)}: {_old_new(trial)}" for trial in others)
        cells = (
            METHODS.get(method).title,
            f"{best['phases']} x {best['epochs']}",
            _setting(best),
            _old_new(best),
            tried,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _setting(trial: Row) -> str:
    return ", ".join(f"{key} {value:.4g}" for key, value in trial["options"].items())


def _old_new(trial: Row) -> str:
    return f"{trial['base']:.1f} / {trial['new']:.1f}"


def _origin(origin: Row) -> str:
    versions = f"dsal {origin['dsal']}, torch {origin['torch']}; {origin['cpu']}"
    return f"{versions}; {origin['threads']} thread a run, two runs at a time."


if __name__ == "__main__":
    draw(means(read()["runs"])).savefig(PICTURE, dpi=150, metadata={"Software": None})
