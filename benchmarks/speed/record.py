"""The output of a benchmark: a table to read, raw numbers as JSON, a picture, and the conditions of the measurement."""

from __future__ import annotations

import json
import os
import statistics
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from matplotlib.figure import Figure

from dsal.protocol.provenance import environment

RESULTS = Path(__file__).parents[1] / "results" / "speed"
Plot = Callable[["Record", Any], None]  # draws the record on matplotlib axes


@dataclass
class Record:
    """The results of one benchmark.

    Attributes:
        name: name of the benchmark and of its files.
        title: what was measured, in one line.
        columns: headings of the table.
        rows: the table; numbers are shown with three significant digits.
        notes: what a reader of the table must know.
        raw: everything measured, as JSON values.
        plot: draws the picture.
    """

    name: str
    title: str
    columns: Sequence[str]
    plot: Plot
    rows: list[list[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Print the table; write ``name.json``, ``name.md`` and ``name.png``."""
        folder.mkdir(parents=True, exist_ok=True)
        conditions = conditions_now()
        text = f"{self.title}\n\n{self._table()}\n\n" + "".join(
            f"- {note}\n" for note in [*self.notes, said(conditions)]
        )
        print(f"\n{text}")
        (folder / f"{self.name}.md").write_text(text, encoding="utf-8")
        document = {
            "benchmark": self.name,
            "title": self.title,
            "table": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "notes": self.notes,
            "raw": self.raw,
            "conditions": conditions,
        }
        (folder / f"{self.name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        self.plot(self, axes)
        axes.margins(x=0.15)  # room for the labels of bars
        figure.suptitle(textwrap.fill(self.title, 80), fontsize=10)
        figure.savefig(folder / f"{self.name}.png", dpi=130)

    def _table(self) -> str:
        cells = [list(self.columns), *([shown(value) for value in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
            for row in cells
        ]
        rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
        return "\n".join([lines[0], rule, *lines[1:]])


def shown(value: Any) -> str:
    """Format a cell of a table.

    >>> [shown(value) for value in (1234.5, 12.345, 0.01234, 7, "x", None)]
    ['1234', '12.3', '0.0123', '7', 'x', '']
    """
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def conditions_now() -> dict[str, Any]:
    """Return versions, hardware, threads, commit, and the load of the machine."""
    from threadpoolctl import threadpool_info

    import dsal.linalg.backend  # noqa: F401  # so that all libraries are loaded

    libraries = {f"{pool['user_api']} {pool['internal_api']}": pool["num_threads"] for pool in threadpool_info()}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {**environment(), "cores": os.cpu_count(), "libraries": libraries, "load": load}


def said(conditions: dict[str, Any]) -> str:
    """Format the conditions in one line."""
    packages = ", ".join(f"{name} {conditions[name]}" for name in ("torch", "numpy", "scipy"))
    threads = ", ".join(f"{library} {count}" for library, count in conditions["libraries"].items())
    return (
        f"{conditions['cpu']}, {conditions['cores']} cores, threads: {threads}; "
        f"Python {conditions['python']}, {packages}; "
        f"commit {str(conditions['commit'])[:12]}, {conditions['started']}, load {conditions['load']:.1f}"
    )


def seconds(work: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turns(contestants: dict[str, Callable[[], Any]], rounds: range) -> dict[str, list[float]]:
    """Return the seconds of each contestant in each round.

    They take turns, so that all run under the same conditions. The order changes in each round, so that none always
    follows the same one and inherits its heat and caches.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in rounds:
        names = [*contestants]
        Random(turn).shuffle(names)
        for name in names:
            taken[name].append(seconds(contestants[name]))
    return taken


def medians(taken: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each contestant."""
    return {name: statistics.median(times) for name, times in taken.items()}
