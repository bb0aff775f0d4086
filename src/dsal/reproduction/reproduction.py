"""Reproduce the paper: train what is missing, then turn the trainings into numbers, figures and pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsal.base.registry import Registry
from dsal.files.schema import ANY_TABLE, read_json, write_json
from dsal.protocol.provenance import environment
from dsal.reproduction import fig3, fig4, fig5, fig6, table1, table2
from dsal.reproduction.item import Item
from dsal.reproduction.plan import Plan
from dsal.reproduction.training_archive import Archive

ITEMS: Registry[Item] = Registry("table or figure")
for _module in (table1, table2, fig3, fig4, fig5, fig6):
    ITEMS.register(_module.ITEM.name)(_module.ITEM)

ALL = "all"


@dataclass(frozen=True)
class Step:
    """The step just finished; ``done`` of ``total`` trainings."""

    title: str
    done: int
    total: int


def chosen_items(names: Sequence[str]) -> list[Item]:
    """Return the tables and figures of these names in the paper's order; ``all`` means all of them."""
    wanted = set(ITEMS.names()) if ALL in names else {ITEMS.get(name).name for name in names}
    order = ("table1", "table2", "fig3", "fig4", "fig5", "fig6")
    return [ITEMS.get(name) for name in order if name in wanted]


def reproduce(names: Sequence[str], plan: Plan, out: Path) -> Iterator[Step]:
    """Compute what is missing and yield each step; what ``out`` already contains is not computed again.

    Writes ``NAME.json`` and the figures of each table and figure, and for Table 1 folders like those of ``dsal run``.

    Raises:
        InputError: ``out`` contains trainings on other data or with other options.
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
            write_json(out / f"{item.name}.json", {"skipped": summary})
            yield Step(f"{item.name} skipped: {summary}", len(jobs), len(jobs))
            continue
        origin = archive.origin(item.needs(plan)[0])
        document = {
            "plan": plan.as_json(),
            "provenance": origin,
            "written": environment(),
            "training_seconds": seconds,
            "summary": summary,
        }
        write_json(out / f"{item.name}.json", document)
        item.draw(summary, figures)
        yield Step(f"{item.name} in {out / f'{item.name}.json'}", len(jobs), len(jobs))


def read_summaries(out: Path) -> dict[str, dict[str, Any]]:
    """Read the documents in the folder of a reproduction, by name, in the paper's order."""
    documents = {}
    for item in chosen_items([ALL]):
        path = out / f"{item.name}.json"
        if path.is_file():
            documents[item.name] = read_json(path, ANY_TABLE)
    return documents
