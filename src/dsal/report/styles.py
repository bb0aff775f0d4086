"""How runs are told apart: by colour, dash and marker at once, so that no figure depends on colour alone.

The three lists have coprime lengths: 8 x 5 x 7 = 280 runs pass before a combination returns.
"""

from __future__ import annotations

from dataclasses import dataclass

LIGHT = ("#174a8c", "#b4500b", "#1a7550", "#7d3c98", "#7d6608", "#4d4d4d", "#a3195b", "#0b6e75")
DARK = ("#8ab8f5", "#f0a060", "#6fd0a2", "#d0a5e8", "#dcc45a", "#c4c4c4", "#f291b5", "#5fcdd4")
DASHES: tuple[tuple[float, ...], ...] = ((), (7, 3), (2, 2.5), (9, 3, 2, 3), (14, 4))  # in units of a 1 px line
MARKERS = ("o", "s", "^", "v", "X", "P", "p")  # matplotlib's names
_OUTLINES = (  # the same shapes as SVG paths, about 8 px across, centred
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M-3.5,-3.5h7v7h-7z",
    "M0,-4.6L4.3,3.4H-4.3z",
    "M0,4.6L4.3,-3.4H-4.3z",
    "M-4,-2.2L-2.2,-4L0,-1.8L2.2,-4L4,-2.2L1.8,0L4,2.2L2.2,4L0,1.8L-2.2,4L-4,2.2L-1.8,0z",
    "M-1.4,-4.4h2.8v3h3v2.8h-3v3h-2.8v-3h-3v-2.8h3z",
    "M0,-4.5L4.3,-1.4L2.6,3.7H-2.6L-4.3,-1.4z",
)
DIAMOND = "M0,-5.5L5.5,0L0,5.5L-5.5,0z"  # kept for the paper's points


@dataclass(frozen=True)
class Style:
    """The look of one run."""

    color: int  # index into LIGHT and DARK
    dash: tuple[float, ...]
    marker: str
    outline: str


def style(run: int) -> Style:
    """The look of the run with this number."""
    return Style(
        color=run % len(LIGHT),
        dash=DASHES[run % len(DASHES)],
        marker=MARKERS[run % len(MARKERS)],
        outline=_OUTLINES[run % len(_OUTLINES)],
    )


def css_colors() -> str:
    """The palette as CSS: classes ``c0``, ``c1``... set ``--c``; print always takes the light colours."""
    light = "".join(f".c{i}{{--c:{color}}}" for i, color in enumerate(LIGHT))
    dark = "".join(f".c{i}{{--c:{color}}}" for i, color in enumerate(DARK))
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
