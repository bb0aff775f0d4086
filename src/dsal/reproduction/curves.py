"""Charts of the figures, in the report's style: integers along x, percent along y."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dsal.report.axes import value_axis
from dsal.report.charts import Axis, Chart, Line, Panel
from dsal.report.figures import draw_chart, save_figure


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
