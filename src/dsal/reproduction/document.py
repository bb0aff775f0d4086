"""The reproduction as Markdown and as an HTML page, both made from its output files alone."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsal.errors import InputError
from dsal.files.atomic import write_text
from dsal.report.templates import render
from dsal.reproduction.item import Block, Picture
from dsal.reproduction.reproduction import ITEMS, read_summaries

TITLE = "The paper's tables and figures"


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
    sections += [
        (name, ITEMS.get(name).title, ITEMS.get(name).describe(document["summary"])) for name, document in done
    ]
    sections += [(name, ITEMS.get(name).title, [f"Left out: {document['skipped']}."]) for name, document in left_out]
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


def markdown_block(block: Block) -> list[str]:
    """Return the lines of a block in Markdown."""
    if isinstance(block, str):
        return [block]
    if isinstance(block, Picture):
        return [f"![{block.caption}](figures/{block.key}.png)"]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (block.heads, *block.rows)]
    rule = ["---", *["---:"] * (len(block.heads) - 1)]
    return [f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:])]


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
