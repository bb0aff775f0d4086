"""Reproducing the paper: train what is missing, then turn the trainings into numbers, figures and pages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsal.evaluation.provenance import environment
from dsal.experiments import fig3, fig4, fig5, fig6, table1, table2
from dsal.experiments.archive import Archive
from dsal.experiments.item import Item
from dsal.experiments.plan import Plan
from dsal.registry import Registry
from dsal.schema import ANY_TABLE
from dsal.store import atomic_write, read_json

ITEMS: Registry[Item] = Registry("table or figure")
for _module in (table1, table2, fig3, fig4, fig5, fig6):
    ITEMS.register(_module.ITEM.name)(_module.ITEM)

ALL = "all"


@dataclass(frozen=True)
class Step:
    """What has just been done; ``done`` of ``total`` trainings."""

    title: str
    done: int
    total: int


def chosen_items(names: Sequence[str]) -> list[Item]:
    """The tables and figures of these names in the paper's order; ``all`` stands for all of them."""
    wanted = set(ITEMS.names()) if ALL in names else {ITEMS.get(name).name for name in names}
    order = ("table1", "table2", "fig3", "fig4", "fig5", "fig6")
    return [ITEMS.get(name) for name in order if name in wanted]


def reproduce(names: Sequence[str], plan: Plan, out: Path) -> Iterator[Step]:
    """Do all that is missing; what ``out`` holds already is not done again.

    Writes ``NAME.json`` and the figures of each table and figure, and from Table 1 folders as ``dsal run`` writes them.

    Raises:
        InputError: ``out`` holds trainings on other data or with other options.
    """
    items, archive = chosen_items(names), Archive(plan, out)
    needs = [need for item in items for need in item.needs(plan)]
    archive.open(needs)
    jobs = archive.jobs(needs)
    for done, job in enumerate(archive.run(jobs), start=1):
        yield Step(job.title, done, len(jobs))
    figures, seconds = out / "figures", archive.total_seconds()
    figures.mkdir(exist_ok=True)
    for item in items:
        summary = item.summarise(archive)
        if isinstance(summary, str):
            _write(out / f"{item.name}.json", {"skipped": summary})
            yield Step(f"{item.name} is left out: {summary}", len(jobs), len(jobs))
            continue
        origin = archive.origin(item.needs(plan)[0])
        document = {
            "plan": plan.as_json(),
            "provenance": origin,
            "written": environment(),
            "training_seconds": seconds,
            "summary": summary,
        }
        _write(out / f"{item.name}.json", document)
        item.draw(summary, figures)
        yield Step(f"{item.name} in {out / f'{item.name}.json'}", len(jobs), len(jobs))


def read_summaries(out: Path) -> dict[str, dict[str, Any]]:
    """The documents in a folder of a reproduction, by name, in the paper's order."""
    documents = {}
    for item in chosen_items([ALL]):
        path = out / f"{item.name}.json"
        if path.is_file():
            documents[item.name] = read_json(path, ANY_TABLE)
    return documents


def _write(path: Path, document: dict[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
