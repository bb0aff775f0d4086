"""Fig. 6: average accuracy as K grows, on CIFAR-100 (or another data set) and on Omniglot's 1,623 classes.

Theorem 1 says that the main stream after the last phase does not depend on K at all: its predictions are compared
sample by sample, and those that differ are listed with their margins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dsal.report.charts import Axis
from dsal.reproduction.item import Block, Item, Picture, Summary, Table, panel, percent, phase_accuracies, save
from dsal.reproduction.plan import Plan, TrainingSpec, named_file
from dsal.reproduction.training_archive import Archive


def needs(plan: Plan) -> list[TrainingSpec]:
    """Return every K with the first seed."""
    ks = {plan.dataset: plan.growing, plan.characters: plan.growing_characters}
    return [
        TrainingSpec(dataset, k, plan.seeds[0]) for dataset, of_set in ks.items() if dataset is not None for k in of_set
    ]


def summarise(archive: Archive) -> dict[str, Any]:
    """Return by data set and K: average accuracies, correct images at the end, flips of the main stream."""
    sets: dict[str, Any] = {}
    for need in needs(archive.plan):
        scenario = archive.setting(need).scenario
        seen = [classes.stop for classes in scenario.phases]
        main, dual = archive.main(need), archive.stream(need)
        entry = sets.setdefault(
            named_file(need.dataset),
            {"classes": len(scenario.order), "images": int(main.totals.sum()), "seed": need.seed, "points": [],
             "flips": []},
        )  # fmt: skip
        if not entry["points"]:
            first = main
        entry["flips"] += _flips(need.phases, first.best, first.scores, main.best)
        entry["points"].append(
            {
                "phases": need.phases,
                "acil_average": float(np.mean(phase_accuracies(main, seen))),
                "ds_al_average": float(np.mean(phase_accuracies(dual, seen))),
                "acil_correct": int(main.hits[-1].sum()),
                "ds_al_correct": int(dual.hits[-1].sum()),
                "acil_last": percent(main.hits[-1], main.totals),
                "ds_al_last": percent(dual.hits[-1], dual.totals),
            }
        )
    return {"sets": sets}


def _flips(phases: int, best: Any, scores: Any, other: Any) -> list[dict[str, Any]]:
    """Return the test samples that the smallest K and this one classify differently, with the former's margin."""
    rows = np.flatnonzero(best[:, 0] != other[:, 0])
    return [{"phases": phases, "sample": int(row), "margin": float(scores[row, 0] - scores[row, 1])} for row in rows]


def draw(summary: Summary, folder: Path) -> None:
    """Draw one chart per data set; the values of K are evenly spaced."""
    for name, entry in summary["sets"].items():
        at = list(range(len(entry["points"])))
        ticks = tuple((float(i), str(point["phases"])) for i, point in enumerate(entry["points"]))
        axis = Axis("phases K", 0, max(len(at) - 1, 1), ticks)
        lines = {
            title: [point[f"{key}_average"] for point in entry["points"]]
            for title, key in (("DS-AL", "ds_al"), ("ACIL", "acil"))
        }
        save(f"fig6-{name}", "Average accuracy over K", [panel("", axis, at, lines, "average accuracy, %")], folder)


def describe(summary: Summary) -> list[Block]:
    """Report a table and a chart per data set, and whether the main stream is the same for every K."""
    blocks: list[Block] = []
    for name, entry in summary["sets"].items():
        points = entry["points"]
        rows = tuple(
            (f"K = {p['phases']}", f"{p['acil_average']:.2f}", f"{p['ds_al_average']:.2f}", f"{p['acil_last']:.2f}",
             f"{p['ds_al_last']:.2f}", str(p["acil_correct"]), str(p["ds_al_correct"]))
            for p in points
        )  # fmt: skip
        heads = ("", "ACIL average", "DS-AL average", "ACIL last", "DS-AL last", "ACIL correct", "DS-AL correct")
        counts = {point["acil_correct"] for point in points}
        last = [point["ds_al_last"] for point in points]
        same = (
            f"ACIL classifies {points[0]['acil_correct']} of {entry['images']} images correctly for every K"
            if len(counts) == 1
            else f"ACIL's number of correct images differs between values of K: {sorted(counts)}"
        )
        blocks += [
            f"**{name}**: {entry['classes']} classes, seed {entry['seed']}.",
            Table(heads, rows),
            f"{same}; {_text(entry['flips'])} DS-AL's last accuracy varies by {max(last) - min(last):.2f} points over "
            "K: its residues are computed at the end of each phase.",
            Picture(f"fig6-{name}", f"Average accuracy over K on {name}."),
        ]
    return blocks


def _text(flips: list[dict[str, Any]]) -> str:
    if not flips:
        return "no prediction differs."
    listed = "; ".join(f"K = {f['phases']}, image {f['sample']}: margin {f['margin']:.1e}" for f in flips[:20])
    return f"{len(flips)} predictions differ from those of the smallest K ({listed})."


ITEM = Item("fig6", "Fig. 6: average accuracy as K grows", needs, summarise, draw, describe)
