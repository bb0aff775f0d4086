"""Styles of runs: colour, dash and marker together, so that no figure depends on colour alone.

The three lists have coprime lengths, so a combination repeats only after 8 x 5 x 7 = 280 runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.markers import MarkerStyle
from matplotlib.transforms import Affine2D

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
