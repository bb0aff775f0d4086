"""A table or figure of the paper: what it needs, what is drawn, and the blocks of text that describe it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from dsal.protocol.metrics import MeanStd
from dsal.report.charts import Axis, Chart, Line, Panel, value_axis
from dsal.report.figures import draw_chart, save_figure
from dsal.reproduction.plan import Plan, TrainingSpec
from dsal.reproduction.training_archive import TrainingArchive

Summary: TypeAlias = Mapping[str, Any]
"""Numbers of a table or figure as a JSON object: all that tables, figures and pages are made from."""


@dataclass(frozen=True)
class Table:
    """Rows of text below a header; the first column names the row."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A figure in the folder ``figures``: ``key`` names the files, ``caption`` describes it."""

    key: str
    caption: str


Block: TypeAlias = "str | Table | Picture"


class Item(ABC):
    """One table or figure of the paper, from the trainings that it needs to its part of the page."""

    name: ClassVar[str]
    """Its name on the command line."""
    title: ClassVar[str]
    """What it shows."""

    @abstractmethod
    def needs(self, plan: Plan) -> list[TrainingSpec]:
        """Return the trainings that it requires."""

    @abstractmethod
    def summarise(self, archive: TrainingArchive) -> dict[str, Any] | str:
        """Return its numbers, from the trainings, or a string that says why there are none."""

    def draw(self, summary: Summary, folder: Path) -> None:  # noqa: B027
        """Write its figures to a folder, from the numbers; a table has none."""

    @abstractmethod
    def describe(self, summary: Summary) -> list[Block]:
        """Return paragraphs, tables and pictures, from the numbers."""


def shown(value: Mapping[str, Any]) -> str:
    """Format mean and deviation over seeds."""
    return str(MeanStd.of(value))


def signed(difference: float) -> str:
    """Format a difference with its sign.

    >>> signed(0.5), signed(-0.25)
    ('+0.50', '-0.25')
    """
    return f"{difference:+.2f}"


def draw_lines(
    key: str, x: Axis, at: Sequence[int], lines: Mapping[str, Sequence[float]], unit: str, folder: Path
) -> None:
    """Draw named lines over the same x values ``at``, and write ``key.png`` and ``key.pdf``."""
    low, high, ticks = value_axis([value for line in lines.values() for value in line], top=100)
    drawn = tuple(
        Line(run=number, label=label, x=tuple(at), y=tuple(values), std=None, phases=tuple(range(len(at))))
        for number, (label, values) in enumerate(lines.items())
    )
    panel = Panel("", x, Axis(unit, low, high, ticks), drawn)
    save_figure(draw_chart(Chart(key, "", "", "%", (panel,))), folder, key)


def markdown_block(block: Block) -> list[str]:
    """Return the lines of a block in Markdown."""
    if isinstance(block, str):
        return [block]
    if isinstance(block, Picture):
        return [f"![{block.caption}](figures/{block.key}.png)"]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (block.heads, *block.rows)]
    rule = ["---", *["---:"] * (len(block.heads) - 1)]
    return [f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:])]
