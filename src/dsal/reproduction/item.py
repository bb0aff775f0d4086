"""A table or figure of the paper, and how its results are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dsal.protocol.metrics import MeanStd
from dsal.report.axes import value_axis
from dsal.report.charts import Axis, Chart, Line, Panel
from dsal.report.figures import draw_chart, save_figure
from dsal.reproduction.plan import Plan, TrainingSpec
from dsal.reproduction.stream_training import Measurement
from dsal.reproduction.training_archive import Archive

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


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Attributes:
        name: its name on the command line.
        title: what it shows.
        needs: returns the trainings it requires.
        summarise: returns its numbers, from the trainings, or a string that says why there are none.
        draw: writes its figures to a folder, from the numbers.
        describe: returns paragraphs, tables and pictures, from the numbers.
    """

    name: str
    title: str
    needs: Callable[[Plan], list[TrainingSpec]]
    summarise: Callable[[Archive], dict[str, Any] | str]
    draw: Callable[[Summary, Path], None]
    describe: Callable[[Summary], list[Block]]


def draw_nothing(summary: Summary, folder: Path) -> None:
    """Draw nothing: for tables."""


def percent(hits: Sequence[int] | np.ndarray[Any, Any], totals: Sequence[int] | np.ndarray[Any, Any]) -> float:
    """Return the percentage of test samples classified correctly.

    >>> percent([3, 1], [4, 4])
    50.0
    """
    return float(100 * int(np.sum(hits)) / int(np.sum(totals)))


def phase_accuracies(measurement: Measurement, seen: Sequence[int]) -> list[float]:
    """Return A_0 .. A_K; ``seen`` is the number of classes seen after each phase."""
    return [percent(measurement.hits[k, :n], measurement.totals[:n]) for k, n in enumerate(seen)]


def shown(value: Mapping[str, Any]) -> str:
    """Format mean and deviation over seeds."""
    return str(MeanStd.of(value))


def signed(difference: float) -> str:
    """Format a difference with its sign.

    >>> signed(0.5), signed(-0.25)
    ('+0.50', '-0.25')
    """
    return f"{difference:+.2f}"


def ratio_axis(ratios: Sequence[float]) -> Axis:
    """Return an x axis for C, in tenths."""
    tenths = [round(10 * ratio) for ratio in ratios]
    ticks = tuple((float(tenth), f"{tenth / 10:g}") for tenth in tenths if tenth % 2 == 0 or len(tenths) < 8)
    return Axis("compensation ratio C", min(tenths), max(tenths), ticks)


def panel(title: str, x: Axis, at: Sequence[int], lines: Mapping[str, Sequence[float]], unit: str) -> Panel:
    """Return a panel of named lines over the same x values."""
    low, high, ticks = value_axis([value for line in lines.values() for value in line], top=100)
    drawn = tuple(
        Line(run=number, label=label, x=tuple(at), y=tuple(values), std=None, phases=tuple(range(len(at))))
        for number, (label, values) in enumerate(lines.items())
    )
    return Panel(title, x, Axis(unit, low, high, ticks), drawn)


def save(key: str, title: str, panels: Sequence[Panel], folder: Path) -> None:
    """Draw panels side by side and write ``key.png`` and ``key.pdf``."""
    save_figure(draw_chart(Chart(key, title, "", "%", tuple(panels))), folder, key)
