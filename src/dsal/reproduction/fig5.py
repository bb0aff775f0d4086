"""Fig. 5: last accuracy over C for every activation of the compensation stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsal.reproduction.item import Block, Item, Picture, Summary, Table, panel, percent, ratio_axis, save
from dsal.reproduction.plan import Plan, TrainingSpec
from dsal.reproduction.stream_training import RATIOS, Stream
from dsal.reproduction.training_archive import Archive


def needs(plan: Plan) -> list[TrainingSpec]:
    """Return one compensation stream per activation; varying C costs nothing."""
    return [TrainingSpec(plan.dataset, plan.phases[0], plan.seeds[0], Stream(name)) for name in plan.activations]


def summarise(archive: Archive) -> dict[str, Any]:
    """Return the last accuracy of each activation at C = 0.1 .. 2.0."""
    curves = {}
    for need in needs(archive.plan):
        measured = archive.stream(need)
        curves[need.stream.activation] = [percent(hits, measured.totals) for hits in measured.grid[1:]]
    first = needs(archive.plan)[0]
    main = archive.main(first)
    without = percent(main.hits[-1], main.totals)
    return {
        "phases": first.phases,
        "seed": first.seed,
        "ratios": list(RATIOS[1:]),
        "without": without,
        "curves": curves,
    }


def draw(summary: Summary, folder: Path) -> None:
    """Draw all curves in one chart."""
    at = [round(10 * ratio) for ratio in summary["ratios"]]
    axis = ratio_axis(summary["ratios"])
    save("fig5", "Activations over C", [panel("", axis, at, summary["curves"], "last accuracy, %")], folder)


def describe(summary: Summary) -> list[Block]:
    """Report the peak of each activation, best first."""
    peaks = sorted(
        ((max(curve), summary["ratios"][curve.index(max(curve))], name) for name, curve in summary["curves"].items()),
        key=lambda peak: -peak[0],
    )
    rows = tuple(
        (name, f"{best:.2f}", f"{at:g}", f"{summary['curves'][name][5]:.2f}", f"{summary['curves'][name][-1]:.2f}")
        for best, at, name in peaks
    )
    return [
        f"K = {summary['phases']}, seed {summary['seed']}; without compensation {summary['without']:.2f}. One "
        "compensation stream for each activation; all share the projection and the main stream. Peaks are measured on "
        "test data, as in the paper's figure; they were not used to choose anything.",
        Table(("activation", "best last accuracy", "at C", "at C = 0.6", "at C = 2"), rows),
        "The paper finds tanh good on all data sets, with its peak at C = 0.6 on CIFAR-100.",
        Picture("fig5", "Last accuracy over C for each activation of the compensation stream."),
    ]


ITEM = Item("fig5", "Fig. 5: activations and C", needs, summarise, draw, describe)
