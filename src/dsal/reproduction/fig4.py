"""Fig. 4: (a) base and new classes with and without compensation, (b) the same over C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsal.reproduction.item import Block, Item, Picture, Summary, Table, panel, percent, ratio_axis, save, signed
from dsal.reproduction.plan import Plan, TrainingSpec
from dsal.reproduction.stream_training import RATIOS
from dsal.reproduction.training_archive import Archive

PAPER = {"base": (75.48, 72.79), "new": (36.61, 43.56)}
"""Values of Fig. 4a, without and with compensation; their means are the paper's last accuracies on ImageNet-Full."""


def needs(plan: Plan) -> list[TrainingSpec]:
    """Return the one training that is needed."""
    return [TrainingSpec(plan.dataset, plan.phases[0], plan.seeds[0])]


def summarise(archive: Archive) -> dict[str, Any]:
    """Return the accuracy on base, new and all classes after the last phase, for every C."""
    (need,) = needs(archive.plan)
    measured, base = archive.stream(need), archive.setting(need).scenario.seen(0)
    grid, totals = measured.grid, measured.totals
    return {
        "phases": need.phases,
        "seed": need.seed,
        "compensation": archive.plan.compensation,
        "ratios": list(RATIOS),
        "base": [percent(hits[:base], totals[:base]) for hits in grid],
        "new": [percent(hits[base:], totals[base:]) for hits in grid],
        "all": [percent(hits, totals) for hits in grid],
    }


def draw(summary: Summary, folder: Path) -> None:
    """Draw Fig. 4b; Fig. 4a is a table of two of its points."""
    at = [round(10 * ratio) for ratio in summary["ratios"]]
    lines = {"base classes": summary["base"], "new classes": summary["new"], "all classes": summary["all"]}
    drawn = panel("", ratio_axis(summary["ratios"]), at, lines, "accuracy, %")
    save("fig4", "Stability and plasticity over C", [drawn], folder)


def describe(summary: Summary) -> list[Block]:
    """Report what the base classes lose and the new classes gain by compensation."""
    place = summary["ratios"].index(summary["compensation"])
    rows = tuple(
        (f"{group} classes", f"{summary[group][0]:.2f}", f"{summary[group][place]:.2f}",
         signed(summary[group][place] - summary[group][0]), _paper(group))
        for group in ("base", "new", "all")
    )  # fmt: skip
    best = max(range(len(summary["all"])), key=lambda i: summary["all"][i])
    return [
        f"After the last of K = {summary['phases']} phases, seed {summary['seed']}. The paper does not name the data "
        "set of its numbers; their means are its last accuracies on ImageNet-Full.",
        Table(("", "C = 0", f"C = {summary['compensation']:g}", "change", "paper"), rows),
        f"Over C, all classes together peak at C = {summary['ratios'][best]:g} with {summary['all'][best]:.2f} "
        "(measured on test data, as in the paper; not used to choose anything).",
        Picture("fig4", "Accuracy after the last phase over C: base classes, new classes, all classes."),
    ]


def _paper(group: str) -> str:
    if group not in PAPER:
        return "-"
    before, after = PAPER[group]
    return f"{before:.2f} to {after:.2f} ({signed(after - before)})"


ITEM = Item("fig4", "Fig. 4: stability and plasticity", needs, summarise, draw, describe)
