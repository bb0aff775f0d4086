"""What is drawn, independent of how: the page's SVG and the PNG/PDF files are two renderings of these charts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from dsal.protocol.metrics import MeanStd
from dsal.report.run_pages import PhaseValues, Run, dataset_title, paper_results_of

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


Numbered: TypeAlias = Sequence[tuple[int, Run]]
"""Runs with their numbers on the page; a run looks the same in every chart."""


@dataclass(frozen=True)
class Line:
    """One run in one panel; ``x`` counts classes seen, so that runs with different K share an axis."""

    run: int
    label: str
    x: tuple[int, ...]
    y: tuple[float, ...]
    std: tuple[float, ...] | None
    phases: tuple[int, ...]


@dataclass(frozen=True)
class Reference:
    """A number from the paper: a point at ``x``, or a horizontal line if ``x`` is None."""

    label: str
    y: float
    x: int | None


@dataclass(frozen=True)
class Axis:
    """A range and its labelled ticks; a two-line label contains a newline."""

    title: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class Chart:
    """One figure: ``key`` names its files, ``caption`` describes it."""

    key: str
    title: str
    caption: str
    unit: str
    panels: tuple[Panel, ...]


def accuracy_chart(runs: Numbered, suffix: str) -> Chart:
    """Chart accuracy on all classes seen so far, with the paper's last accuracies as points and averages as lines."""
    lines = _lines(runs, lambda phase: phase.accuracy)
    references = _references([run for _, run in runs])
    scale = value_axis(_extent(lines) + [reference.y for reference in references], top=100)
    panel = Panel("", _phase_axis(runs), Axis("accuracy on all classes seen, %", *scale), lines, references)
    caption = "Top-1 accuracy on the test images of all classes seen so far, after each phase." + _bands(lines)
    if references:
        caption += (
            " Diamonds: the paper's last accuracy. Dotted lines: the paper's average over all phases"
            " (it does not report the phases in between)."
        )
    return Chart(f"accuracy{suffix}", "Accuracy per phase", caption, "%", (panel,))


def stability_chart(runs: Numbered, suffix: str) -> Chart:
    """Chart accuracy on base classes (stability) and on later classes (plasticity), on one scale."""
    base = _lines(runs, lambda phase: phase.base)
    new = _lines(runs, lambda phase: phase.new)
    x, y = _phase_axis(runs), Axis("accuracy, %", *value_axis(_extent(base) + _extent(new), top=100))
    panels = (Panel("Stability: base classes", x, y, base), Panel("Plasticity: classes learned since", x, y, new))
    caption = "Test accuracy on the base classes and on later classes, with all classes seen competing."
    return Chart(f"stability{suffix}", "Stability and plasticity", caption + _bands(base), "%", panels)


def timing_chart(runs: Numbered, suffix: str) -> Chart:
    """Chart seconds per phase; the scale is logarithmic if phase 0 would flatten the others."""
    lines = _lines(runs, lambda phase: phase.learning)
    values = [value for line in lines for value in line.y]
    log = min(values) > 0 and max(values) > 20 * min(values)
    scale = log_axis(values) if log else value_axis([0.0, *_extent(lines)], top=None)
    axis = Axis("seconds (logarithmic)" if log else "seconds", *scale, log=log)
    caption = "Wall-clock seconds of learning in each phase, without testing." + _bands(lines)
    return Chart(f"timing{suffix}", "Time per phase", caption, "s", (Panel("", _phase_axis(runs), axis, lines),))


def _references(runs: Sequence[Run]) -> tuple[Reference, ...]:
    """Return the paper's last accuracies, as points at the last class, then its averages, as lines."""
    results, end = paper_results_of(runs), max(run.classes for run in runs)
    return tuple(
        Reference(f"paper, {result.method} K={result.phases}: {word} {value.mean:.2f}", value.mean, x)
        for word, name, x in (("last", "last", end), ("avg.", "average", None))
        for result in results
        if (value := getattr(result, name)) is not None
    )


def _lines(runs: Numbered, measure: Callable[[PhaseValues], MeanStd | None]) -> tuple[Line, ...]:
    lines = []
    for number, run in runs:
        points = [(phase, value) for phase in run.phases if (value := measure(phase)) is not None]
        deviations = [value.std for _, value in points if value.std is not None]
        lines.append(
            Line(
                run=number,
                label=run.label,
                x=tuple(phase.classes_seen for phase, _ in points),
                y=tuple(value.mean for _, value in points),
                std=tuple(deviations) if deviations and len(deviations) == len(points) else None,
                phases=tuple(phase.number for phase, _ in points),
            )
        )
    return tuple(lines)


def _phase_axis(runs: Numbered) -> Axis:
    """Return an axis of phases if all runs share one schedule, else of classes seen."""
    schedules = {tuple((phase.number, phase.classes_seen) for phase in run.phases) for _, run in runs}
    low, high = min(schedule[0][1] for schedule in schedules), max(schedule[-1][1] for schedule in schedules)
    if len(schedules) == 1:
        schedule = next(iter(schedules))
        picked = [schedule[test] for test in pick_phases(len(schedule) - 1)]
        ticks = tuple((float(seen), f"{phase}\n({seen})") for phase, seen in picked)
        title = "phase (classes seen)"
    else:
        ticks = tuple(tick for tick in value_axis([low, high], top=None)[2] if low <= tick[0] <= high)
        title = "classes seen"
    return Axis(title, low, high if high > low else low + 1, ticks)


def _extent(lines: Sequence[Line]) -> list[float]:
    bands = [(y, s) for line in lines for y, s in zip(line.y, line.std or (0.0,) * len(line.y), strict=True)]
    return [y + sign * s for y, s in bands for sign in (-1, 1)]


def _bands(lines: Sequence[Line]) -> str:
    return " Shaded: one standard deviation over seeds." if any(line.std for line in lines) else ""


@dataclass(frozen=True)
class Facet:
    """The charts of all runs on one data set; ``title`` is empty if the page has only one."""

    title: str
    runs: Numbered
    accuracy: Chart
    stability: Chart
    timing: Chart

    @property
    def charts(self) -> tuple[Chart, ...]:
        return (self.accuracy, self.stability, self.timing)


def facets_of(runs: Sequence[Run]) -> tuple[Facet, ...]:
    """Group the runs by data set; file names include the data set if there are several."""
    groups: dict[str, list[tuple[int, Run]]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(run.family, []).append((number, run))
    if len(groups) == 1:
        return (_facet("", "", next(iter(groups.values()))),)
    slugs = [re.sub("[^a-z0-9]+", "-", family.lower()).strip("-") for family in groups]
    if len(set(slugs)) < len(slugs) or not all(slugs):
        slugs = [str(number) for number in range(1, len(slugs) + 1)]
    return tuple(
        _facet(dataset_title(family), f"-{slug}", groups[family]) for family, slug in zip(groups, slugs, strict=True)
    )


def _facet(title: str, suffix: str, runs: Numbered) -> Facet:
    charts = (accuracy_chart(runs, suffix), stability_chart(runs, suffix), timing_chart(runs, suffix))
    return Facet(title, runs, *charts)
