"""Ranges, ticks and labels that do not collide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

Ticks = tuple[tuple[float, str], ...]


def value_axis(values: Sequence[float], top: float | None) -> tuple[float, float, Ticks]:
    """Return a range around the values that begins and ends on round numbers, with four to eight ticks.

    Args:
        values: values that must be visible.
        top: maximum of the quantity itself (100 for a percentage); the range does not exceed it.

    >>> value_axis([57.2, 76.4], top=100)
    (55, 80, ((55, '55'), (60, '60'), (65, '65'), (70, '70'), (75, '75'), (80, '80')))
    """
    shown = [value if top is None else min(value, top) for value in values] or [0.0, 1.0]
    low, high = min(shown), max(shown)
    if high - low < 1e-9:
        low, high = low - 1, high + 1 if top is None else min(high + 1, top)
    step = _round_step((high - low) / 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((_tidy(i * step), f"{_tidy(i * step):g}") for i in range(first, last + 1))
    return ticks[0][0], ticks[-1][0], ticks


def log_axis(values: Sequence[float]) -> tuple[float, float, Ticks]:
    """Return a logarithmic range; ticks at 1, 2 and 5 of each decade, or only at decades if there are many.

    >>> log_axis([0.03, 0.9])
    (0.02, 1.0, ((0.02, '0.02'), (0.05, '0.05'), (0.1, '0.1'), (0.2, '0.2'), (0.5, '0.5'), (1.0, '1')))
    """
    decades = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    digits = (1, 2, 5) if len(decades) <= 4 else (1,)
    grid = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
    low = max([tick for tick in grid if tick <= min(values)], default=grid[0])
    high = min([tick for tick in grid if tick >= max(values)], default=grid[-1])
    return low, high, tuple((tick, f"{tick:g}") for tick in grid if low <= tick <= high)


def pick_phases(last: int) -> list[int]:
    """Return the phases to label: 0, the last, and round numbers between, at most eight.

    >>> pick_phases(25), pick_phases(7), pick_phases(0)
    ([0, 5, 10, 15, 20, 25], [0, 2, 4, 7], [0])
    """
    step = max(1, int(_round_step(last / 6)))
    return [phase for phase in range(0, last, step) if phase == 0 or last - phase > 0.6 * step] + [last]


def spread(positions: Sequence[float], gap: float, high: float) -> list[float]:
    """Return positions for labels: near the given ones, at least ``gap`` apart, none above ``high``.

    >>> spread([50, 11, 10], gap=10, high=100)
    [50.0, 20.0, 10.0]
    >>> spread([99, 98], gap=10, high=100.0)
    [100.0, 90.0]
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = [float(position) for position in positions]
    for before, after in pairwise(order):
        placed[after] = max(placed[after], placed[before] + gap)
    ceiling = high
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed


def _round_step(rough: float) -> float:
    """Return the smallest 1, 2, 2.5 or 5 times a power of ten that is not below ``rough``."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return float(next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= rough * (1 - 1e-9)))


def _tidy(value: float) -> float:
    """Undo the rounding of a product, so that labels read 0.3 and not 0.30000000000000004."""
    rounded = round(value, 10)
    return int(rounded) if rounded == int(rounded) else rounded
