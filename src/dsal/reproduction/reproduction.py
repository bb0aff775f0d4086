"""Reproduce the paper: train what is missing, then turn the trainings into numbers, figures and pages.

The pages, in Markdown and HTML, are made from the output files alone.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dsal.base.progress import Progress
from dsal.errors import InputError, UnknownNameError
from dsal.files.atomic import write_text
from dsal.files.schema import ANY_TABLE, read_json, write_json
from dsal.protocol.provenance import environment
from dsal.report.templates import render
from dsal.reproduction.compensation import Fig3, Fig4, Fig5, Table2
from dsal.reproduction.item import Block, Item, Picture, markdown_block
from dsal.reproduction.over_phases import Fig6, Table1
from dsal.reproduction.plan import Plan
from dsal.reproduction.training_archive import TrainingArchive

ITEMS: Mapping[str, Item] = {item.name: item for item in (Table1(), Table2(), Fig3(), Fig4(), Fig5(), Fig6())}
"""Tables and figures by name, in the paper's order."""
ALL = "all"
TITLE = "The paper's tables and figures"


def chosen_items(names: Sequence[str]) -> list[Item]:
    """Return the tables and figures of these names in the paper's order; ``all`` means all of them."""
    for name in names:
        if name not in (*ITEMS, ALL):
            raise UnknownNameError("table or figure", name, tuple(ITEMS))
    return [item for name, item in ITEMS.items() if name in names or ALL in names]


def reproduce(names: Sequence[str], plan: Plan, out: Path) -> Iterator[Progress]:
    """Compute what is missing and yield the number of trainings done; the note is the step just finished.

    What ``out`` already contains is not computed again.

    Writes ``NAME.json`` and the figures of each table and figure, and for Table 1 folders like those of ``dsal run``.

    Raises:
        InputError: ``out`` contains trainings on other data or with other options.
    """
    items, archive = chosen_items(names), TrainingArchive(plan, out)
    needs = [need for item in items for need in item.needs(plan)]
    archive.open(needs)
    jobs = archive.jobs(needs)
    for done, job in enumerate(archive.run(jobs), start=1):
        yield Progress(done, len(jobs), job.title)
    figures, seconds = out / "figures", archive.total_seconds()
    figures.mkdir(exist_ok=True)
    for item in items:
        summary = item.summarise(archive)
        if isinstance(summary, str):
            write_json(out / f"{item.name}.json", {"skipped": summary})
            yield Progress(len(jobs), len(jobs), f"{item.name} skipped: {summary}")
            continue
        origin = archive.origin(item.needs(plan)[0])
        document = {
            "plan": asdict(plan),
            "provenance": origin,
            "written": environment(),
            "training_seconds": seconds,
            "summary": summary,
        }
        write_json(out / f"{item.name}.json", document)
        item.draw(summary, figures)
        yield Progress(len(jobs), len(jobs), f"{item.name} in {out / f'{item.name}.json'}")


def read_summaries(out: Path) -> dict[str, dict[str, Any]]:
    """Read the documents in the folder of a reproduction, by name, in the paper's order."""
    documents = {}
    for item in chosen_items([ALL]):
        path = out / f"{item.name}.json"
        if path.is_file():
            documents[item.name] = read_json(path, ANY_TABLE)
    return documents


def write_documents(out: Path) -> tuple[Path, Path]:
    """Write ``reproduction.md`` and ``reproduction.html`` beside the output files of a reproduction.

    Raises:
        InputError: there are none.
    """
    sections = _sections(out)
    markdown, page = out / "reproduction.md", out / "reproduction.html"
    write_text(markdown, _markdown(sections))
    write_text(page, _page(sections, out / "figures"))
    return markdown, page


def _sections(out: Path) -> list[tuple[str, str, list[Block]]]:
    """Return (name, title, blocks) of each table and figure in the folder."""
    documents = read_summaries(out)
    if not documents:
        raise InputError(f"{out} holds no reproduction: run `dsal reproduce --out {out}` first")
    done = [(name, document) for name, document in documents.items() if "summary" in document]
    left_out = [(name, document) for name, document in documents.items() if "summary" not in document]
    sections = [("about", "How these numbers were made", _about(done))] if done else []
    sections += [(name, ITEMS[name].title, ITEMS[name].describe(document["summary"])) for name, document in done]
    sections += [(name, ITEMS[name].title, [f"Left out: {document['skipped']}."]) for name, document in left_out]
    return sections


def _about(done: Sequence[tuple[str, dict[str, Any]]]) -> list[Block]:
    plan, origin = done[0][1]["plan"], done[0][1]["provenance"]
    backbone = origin["backbone"].get("architecture", "backbone")
    return [
        "Every number below is read from the output files of `dsal reproduce`; the paper is Zhuang et al., AAAI 2024.",
        f"Features: {Path(plan['dataset']).name} ({backbone}, trained on: {origin['backbone_trained_on']}); d_B = "
        f"{plan['expansion_size']}, gamma = {plan['gamma']:g}, C = {plan['compensation']:g}; phase 0 has half of the "
        "classes. The average is over phases 0 to K.",
        f"dsal {origin['dsal']}, commit {origin['commit'] or 'unknown'}, Python {origin['python']}, torch "
        f"{origin['torch']}, NumPy {origin['numpy']}, SciPy {origin['scipy']}; {origin['cpu']}, {origin['threads']} "
        f"threads; data sha256 {origin['data_sha256'][:16]}; started {origin['started']}. All trainings together took "
        f"{max(document['training_seconds'] for _, document in done) / 60:.1f} minutes.",
    ]


def _markdown(sections: Sequence[tuple[str, str, list[Block]]]) -> str:
    lines = [f"# {TITLE}", ""]
    for _, title, blocks in sections:
        lines += [f"## {title}", ""]
        for block in blocks:
            lines += [*markdown_block(block), ""]
    return "\n".join(lines[:-1]) + "\n"


def _page(sections: Sequence[tuple[str, str, list[Block]]], figures: Path) -> str:
    pictures = [block for _, _, blocks in sections for block in blocks if isinstance(block, Picture)]
    return render(
        "reproduction.html",
        title=TITLE,
        subtitle="Our numbers beside those of the paper",
        contents=[(name, title.partition(":")[0]) for name, title, _ in sections],
        policy="img-src data:",
        sections=sections,
        images={one.key: b64encode((figures / f"{one.key}.png").read_bytes()).decode("ascii") for one in pictures},
    )
