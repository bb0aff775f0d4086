"""Table 2: what each module adds, at the smallest K; the paper's is on ImageNet-Full."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsal.protocol.metrics import mean_std
from dsal.protocol.paper_numbers import TABLE_2
from dsal.reproduction.item import (
    Block,
    Item,
    Summary,
    Table,
    draw_nothing,
    percent,
    phase_accuracies,
    shown,
    signed,
)
from dsal.reproduction.plan import DS_AL, Plan, TrainingSpec, title_of
from dsal.reproduction.stream_training import Stream
from dsal.reproduction.training_archive import Archive

UNCLEANSED = Stream(cleanse=False)


def needs(plan: Plan) -> list[TrainingSpec]:
    """Return trainings with and without cleansing; the main stream comes with both."""
    return [
        TrainingSpec(plan.dataset, plan.phases[0], seed, stream)
        for stream in (UNCLEANSED, DS_AL)
        for seed in plan.seeds
    ]


def summarise(archive: Archive) -> dict[str, Any]:
    """Return average and last accuracy of the main stream, with compensation, and with cleansed compensation."""
    plan = archive.plan
    plain, cleansed = ([need for need in needs(plan) if need.stream == stream] for stream in (UNCLEANSED, DS_AL))
    seen = [classes.stop for classes in archive.setting(plain[0]).scenario.phases]
    measured = (
        [archive.main(need) for need in plain],
        [archive.stream(need) for need in plain],
        [archive.stream(need) for need in cleansed],
    )
    rows = [
        {
            "modules": paper.modules,
            "average": mean_std([float(np.mean(phase_accuracies(m, seen))) for m in of_seeds]),
            "last": mean_std([percent(m.hits[-1], m.totals) for m in of_seeds]),
        }
        for paper, of_seeds in zip(TABLE_2, measured, strict=True)
    ]
    dataset = archive.setting(plain[0]).image_dataset
    return {
        "image_dataset": dataset,
        "phases": plan.phases[0],
        "compensation": plan.compensation,
        "seeds": list(plan.seeds),
        "rows": rows,
    }


def describe(summary: Summary) -> list[Block]:
    """Report our rows beside the paper's, and whether the order is the same."""
    last = [row["last"]["mean"] for row in summary["rows"]]
    same = last[0] < last[1] < last[2]
    rows = tuple(
        (row["modules"], shown(row["average"]), shown(row["last"]), f"{paper.average:.2f}", f"{paper.last:.2f}",
         signed(row["last"]["mean"] - last[0]), signed(paper.last - TABLE_2[0].last))
        for row, paper in zip(summary["rows"], TABLE_2, strict=True)
    )  # fmt: skip
    heads = ("modules", "average", "last", "paper: average", "paper: last", "gain in last", "paper: gain in last")
    name = summary.get("image_dataset", "cifar100")  # older summaries lack it
    order = "The order in last accuracy is the paper's" if same else "The order in last accuracy is **not** the paper's"
    return [
        f"{title_of(name)}, K = {summary['phases']}, C = {summary['compensation']:g}."
        + (
            ""
            if name == "imagenet"
            else " The paper's ablation is on ImageNet-Full with C = 1.4, so compare gains, not levels."
        ),
        Table(heads, rows),
        f"{order}: {' / '.join(f'{value:.2f}' for value in last)}.",
    ]


ITEM = Item("table2", "Table 2: what each module adds", needs, summarise, draw_nothing, describe)
