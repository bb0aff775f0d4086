"""Charts as inline SVG: drawn before any script runs, themed by the page's style sheet, readable without colour.

Each panel is drawn twice, wide and narrow, and the style sheet shows the one that fits: text keeps its size on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dsal.report.axes import spread
from dsal.report.charts import Axis, Chart, Line, Panel, Reference
from dsal.report.markup import Markup, el, join
from dsal.report.styles import DIAMOND, style

LABEL_GAP = 15.0


@dataclass(frozen=True)
class Frame:
    """The picture's size and the plot's place in it, in pixels."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


def draw_chart(chart: Chart) -> Markup:
    """All panels of a chart, in both sizes."""
    single = len(chart.panels) == 1
    gutter = 206 if chart.panels[0].references else 24
    below = 34 if "\n" in chart.panels[0].x.ticks[0][1] else 20  # room for tick labels, above the axis title
    above = 26 if single else 46
    left = 14 + 7 * max(len(label) for panel in chart.panels for _, label in panel.y.ticks)
    narrow = Frame(340, 250 + below, left, 320, above, 230)
    if single:
        wide = Frame(760, 380 + below, left, 760 - gutter, above, 360)
    else:
        wide = Frame(400, 290 + below, left, 378, above, 270)
    return join(_panels(chart, wide, "wide"), _panels(chart, narrow, "narrow"))


def draw_swatch(run: int) -> Markup:
    """The line and marker of one run, for legends and tables."""
    look = style(run)
    return el(
        "svg",
        el("path", d="M1,7H35", class_="line", stroke_dasharray=_dashes(look.dash)),
        el("path", d=look.outline, class_="marker", transform="translate(18 7)"),
        class_=f"swatch c{look.color}",
        viewBox="0 0 36 14",
        width=36,
        height=14,
        aria_hidden="true",
    )


def draw_paper_swatch() -> Markup:
    """The diamond and dotted level of the paper's numbers."""
    return el(
        "svg",
        el("path", d="M1,7H35", class_="level"),
        el("path", d=DIAMOND, class_="diamond", transform="translate(18 7)"),
        class_="swatch",
        viewBox="0 0 36 14",
        width=36,
        height=14,
        aria_hidden="true",
    )


def _panels(chart: Chart, frame: Frame, size: str) -> Markup:
    drawn = (_draw(chart, number, frame, labelled=size == "wide") for number in range(len(chart.panels)))
    return el("div", *drawn, class_=f"panels {size}")


def _draw(chart: Chart, number: int, frame: Frame, labelled: bool) -> Markup:
    panel = chart.panels[number]
    x = _scale(panel.x, frame.left, frame.right)
    y = _scale(panel.y, frame.bottom, frame.top)
    names = ", ".join(line.label for line in panel.lines)
    plot = (frame.left, frame.right, frame.top, frame.bottom, panel.x.low, panel.x.high, panel.y.low, panel.y.high)
    return el(
        "svg",
        _grid(panel, frame, x, y),
        *(_reference(reference, frame, x, y) for reference in panel.references),
        _reference_labels(panel.references, frame, y) if labelled else None,
        *(_line(line, x, y, frame.right - frame.left) for line in panel.lines),
        el("g", class_="cursor", aria_hidden="true"),
        class_="plot",
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        tabindex=0,
        aria_label=f"{panel.title or chart.title}. Lines: {names}. Arrow keys read out the points; a table is below.",
        data_chart=chart.key,
        data_panel=number,
        data_plot=" ".join(f"{value:g}" for value in plot),
        data_log=panel.y.log,
    )


def _grid(panel: Panel, frame: Frame, x: Callable[[float], float], y: Callable[[float], float]) -> Markup:
    parts = []
    for value, label in panel.y.ticks:
        height = f"{y(value):.1f}"
        parts.append(el("path", d=f"M{frame.left},{height}H{frame.right}", class_="grid"))
        parts.append(el("text", label, x=frame.left - 8, y=height, dy=".35em", text_anchor="end"))
    for value, label in panel.x.ticks:
        parts.append(el("path", d=f"M{x(value):.1f},{frame.bottom}v5", class_="tick"))
        for row, text in enumerate(label.split("\n")):
            place = frame.bottom + 18 + 14 * row
            parts.append(el("text", text, x=f"{x(value):.1f}", y=place, text_anchor="middle"))
    parts.append(el("path", d=f"M{frame.left},{frame.bottom}H{frame.right}", class_="axis"))
    parts.append(el("text", panel.x.title, x=frame.right, y=frame.height - 4, text_anchor="end"))
    parts.append(el("text", panel.y.title, x=0, y=frame.top - 14))
    if panel.title:
        parts.append(el("text", panel.title, x=0, y=13, class_="heading"))
    return el("g", *parts, aria_hidden="true")


def _line(line: Line, x: Callable[[float], float], y: Callable[[float], float], width: int) -> Markup:
    look = style(line.run)
    points = [(x(a), y(b)) for a, b in zip(line.x, line.y, strict=True)]
    parts = []
    if line.std is not None:
        upper = [(x(a), y(b + s)) for a, b, s in zip(line.x, line.y, line.std, strict=True)]
        lower = [(x(a), y(b - s)) for a, b, s in zip(line.x, line.y, line.std, strict=True)]
        parts.append(el("path", d=_path(upper + lower[::-1]) + "z", class_="band"))
    if len(points) > 1:
        parts.append(el("path", d=_path(points), class_="line", stroke_dasharray=_dashes(look.dash)))
    every = max(1, math.ceil(len(points) * 16 / width))
    marked = points[::-1][::every]  # counted from the end: the last accuracy always has its marker
    shapes = [el("path", d=look.outline, transform=f"translate({a:.1f} {b:.1f})") for a, b in marked]
    parts.append(el("g", *shapes, class_="marker"))
    return el("g", *parts, class_=f"run c{look.color}", data_run=line.run)


def _reference(reference: Reference, frame: Frame, x: Callable[[float], float], y: Callable[[float], float]) -> Markup:
    if reference.x is None:
        return el("path", d=f"M{frame.left},{y(reference.y):.1f}H{frame.right}", class_="level paper")
    place = f"translate({x(reference.x):.1f} {y(reference.y):.1f})"
    return el("path", d=DIAMOND, class_="diamond paper", transform=place)


def _reference_labels(references: tuple[Reference, ...], frame: Frame, y: Callable[[float], float]) -> Markup:
    wished = [y(reference.y) for reference in references]
    placed = spread(wished, LABEL_GAP, frame.bottom)
    parts = []
    for reference, start, end in zip(references, wished, placed, strict=True):
        leader = f"M{frame.right + 8},{start:.1f}L{frame.right + 18},{end:.1f}"
        parts.append(el("path", d=leader, class_="leader"))
        parts.append(el("text", reference.label, x=frame.right + 21, y=f"{end:.1f}", dy=".35em", class_="note"))
    return el("g", *parts, class_="paper")


def _scale(axis: Axis, start: float, end: float) -> Callable[[float], float]:
    """A map from values to pixels; what lies beyond the axis stays at its edge."""
    transform = math.log10 if axis.log else float
    low, high = transform(axis.low), transform(axis.high)

    def place(value: float) -> float:
        clipped = min(max(value, axis.low), axis.high)
        return start + (end - start) * (transform(clipped) - low) / (high - low)

    return place


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in points)


def _dashes(dash: tuple[float, ...]) -> str | None:
    return " ".join(f"{length:g}" for length in dash) or None
