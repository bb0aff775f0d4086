"""Charts and confusion matrices drawn by matplotlib, and their PNG and PDF files.

Figures are built from matplotlib's objects, never through pyplot: no window opens, no global setting changes. A run has
a colour, a dash and a marker, so that no figure depends on colour alone. The three lists have coprime lengths, so a
combination repeats only after 8 x 5 x 7 = 280 runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import NullLocator
from matplotlib.transforms import Affine2D

from dsal.report.charts import Axis, Chart, Line, Panel, Reference, spread
from dsal.report.confusion_chart import ConfusionChart
from dsal.report.run_pages import Run

LIGHT = ("#174a8c", "#b4500b", "#1a7550", "#7d3c98", "#7d6608", "#4d4d4d", "#a3195b", "#0b6e75")
DARK = ("#8ab8f5", "#f0a060", "#6fd0a2", "#d0a5e8", "#dcc45a", "#c4c4c4", "#f291b5", "#5fcdd4")
DASHES: tuple[tuple[float, ...], ...] = ((), (7, 3), (2, 2.5), (9, 3, 2, 3), (14, 4))  # in units of a 1 px line
MARKERS = ("o", "s", "^", "v", "X", "P", "p")  # matplotlib's names
_LETTERS = {1: "M", 2: "L", 4: "C", 79: "z"}  # SVG path commands, by matplotlib's path codes


@dataclass(frozen=True)
class Style:
    """The look of one run."""

    color: int  # index into LIGHT and DARK
    dash: tuple[float, ...]
    marker: str

    @property
    def outline(self) -> str:
        """The marker as an SVG path, 8 px across."""
        marker = MarkerStyle(self.marker)
        path = marker.get_path().transformed(marker.get_transform() + Affine2D().scale(8, -8))
        parts = ((_LETTERS[int(code)], [f"{value:.2f}" for value in points]) for points, code in path.iter_segments())
        return "".join("z" if letter == "z" else letter + ",".join(points) for letter, points in parts)


def style(run: int) -> Style:
    """Return the look of the run with this number."""
    return Style(run % len(LIGHT), DASHES[run % len(DASHES)], MARKERS[run % len(MARKERS)])


def css_colors() -> str:
    """Return the palette as CSS: classes ``c0``, ``c1``... set ``--c``; print always uses the light colours."""
    light = "".join(f".c{i}{{--c:{color}}}" for i, color in enumerate(LIGHT))
    dark = "".join(f".c{i}{{--c:{color}}}" for i, color in enumerate(DARK))
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"


INK, FAINT, PAPER, GROUND = "#222222", "#dddddd", "#555555", "#ffffff"
RAMP = LinearSegmentedColormap.from_list("counts", ["#ffffff", "#9dbbe0", "#2f5f9e", "#0b1f3d"])
SMALL, NORMAL = 8.0, 9.0
DPI = 200


def draw_chart(chart: Chart) -> Figure:
    """Draw a chart on white, with one legend below all panels."""
    lines = chart.panels[0].lines
    columns = max(1, min(len(lines), 100 // (max(len(line.label) for line in lines) + 10)))
    height = 3.4 + 0.2 * math.ceil(len(lines) / columns)
    figure = draw_panels(chart.panels, 6.6 if len(chart.panels) == 1 else 7.2, height, named=True)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=SMALL, handlelength=4
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar sign in a directory's name is literal
    return figure


def draw_confusion(items: Sequence[tuple[Run, ConfusionChart]]) -> Figure:
    """Draw the last phase's matrix of each run, rows scaled to their totals."""
    columns = min(math.ceil(math.sqrt(len(items))), 3)
    rows = math.ceil(len(items) / columns)
    width, height = max(3.2 * columns, 4.2) + 0.6, (3.2 if columns > 1 else 4.0) * rows + 0.3
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, (run, confusion) in zip(axes, items, strict=False):
        counts = confusion.matrices[-1].astype(float)
        fractions = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        seen = confusion.seen[-1]
        image = ax.imshow(
            np.sqrt(fractions), cmap=RAMP, vmin=0, vmax=1, extent=(0, seen, seen, 0), interpolation="nearest"
        )
        for draw in (ax.axvline, ax.axhline):
            draw(run.phases[0].classes_seen, color=INK, linewidth=0.6, linestyle=(0, (4, 3)))
        ax.set_title(run.label, fontsize=NORMAL, color=INK, parse_math=False)
        ax.set_xlabel("predicted class (in order of arrival)", fontsize=SMALL)
        ax.set_ylabel("true class", fontsize=SMALL)
        ax.tick_params(labelsize=SMALL, color=INK)
    for ax in axes[len(items) :]:
        ax.set_axis_off()
    shrink, ticks = 0.8 if rows == 1 else 0.5, np.sqrt([0, 0.05, 0.25, 0.5, 1])
    bar = figure.colorbar(image, ax=list(axes), shrink=shrink, ticks=ticks)
    bar.ax.set_yticklabels(["0", "5", "25", "50", "100"])
    bar.set_label("% of the true class's test images", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    return figure


def save_figure(figure: Figure, folder: Path, key: str) -> None:
    """Write ``key.png`` and ``key.pdf``; the same figure gives the same bytes (no dates inside)."""
    figure.savefig(folder / f"{key}.png", dpi=DPI, metadata={"Software": None})
    figure.set_layout_engine("none")  # keep the layout, so that both files look the same
    figure.savefig(folder / f"{key}.pdf", metadata={"CreationDate": None})


def draw_panels(panels: Sequence[Panel], width: float, height: float, named: bool) -> Figure:
    """Draw panels side by side; with ``named``, label the paper's numbers."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, panel in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels, strict=True):
        for line in panel.lines:
            _draw_line(ax, line, panel.y)
        for reference in panel.references:
            _draw_reference(ax, reference)
        if named:
            _name_references(ax, panel)
        _set_axes(ax, panel)
    return figure


def _draw_line(ax: Axes, line: Line, y: Axis) -> None:
    look, gid = style(line.run), f"run-{line.run}"
    color = LIGHT[look.color]
    every = max(1, math.ceil(len(line.x) / 30))
    ax.plot(
        line.x, line.y, color=color, linewidth=1.4, dashes=look.dash or (None, None), marker=look.marker, markersize=4,
        markeredgecolor=GROUND, markeredgewidth=0.4, markevery=(0 if not line.x else (len(line.x) - 1) % every, every),
        label=line.label, clip_on=False, gid=gid,
    )  # fmt: skip
    if line.std is not None:
        lower, upper = np.clip(np.array(line.y) + np.outer((-1, 1), line.std), y.low, y.high)
        ax.fill_between(line.x, lower, upper, color=color, alpha=0.18, linewidth=0, gid=gid)


def _draw_reference(ax: Axes, reference: Reference) -> None:
    if reference.x is None:
        ax.axhline(reference.y, color=PAPER, linewidth=0.8, linestyle=(0, (1, 2)), gid="paper")
    else:
        ax.plot(
            [reference.x], [reference.y], marker="D", markersize=6, color=PAPER, markerfacecolor=GROUND,
            linestyle="none", clip_on=False, zorder=4, gid="paper",
        )  # fmt: skip


def _name_references(ax: Axes, panel: Panel) -> None:
    labels = spread([reference.y for reference in panel.references], 0.05 * (panel.y.high - panel.y.low), panel.y.high)
    beside: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "color": PAPER, "clip_on": False, "gid": "paper"}
    for reference, label in zip(panel.references, labels, strict=True):
        ax.plot([1.01, 1.03], [reference.y, label], linewidth=0.5, **beside)
        ax.text(1.035, label, reference.label, fontsize=SMALL, va="center_baseline", **beside)


def _set_axes(ax: Axes, panel: Panel) -> None:
    if panel.y.log:
        ax.set_yscale("log")
    margin = 0.02 * (panel.x.high - panel.x.low)
    ax.set_xlim(panel.x.low - margin, panel.x.high + margin)
    ax.set_ylim(panel.y.low, panel.y.high)
    ax.set_xticks([value for value, _ in panel.x.ticks], [label for _, label in panel.x.ticks])
    ax.set_yticks([value for value, _ in panel.y.ticks], [label for _, label in panel.y.ticks])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(panel.x.title, fontsize=SMALL, color=PAPER, loc="right")
    ax.set_title(panel.y.title, fontsize=SMALL, color=PAPER, loc="left")
    if panel.title:
        ax.annotate(panel.title, (0, 1), (0, 20), "axes fraction", "offset points", fontsize=NORMAL, color=INK)
    ax.tick_params(labelsize=SMALL, color=PAPER, labelcolor=PAPER, length=3)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines["bottom"].set_color(PAPER)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
