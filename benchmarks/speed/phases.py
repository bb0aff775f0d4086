"""Time per phase, from 5 phases to 500, and whether the 500th takes as long as the first.

Up to 50 phases, each brings new classes. With 500, a phase has fewer rows than there are classes: the rows of the new
classes are shuffled, so after some phases all classes have been seen and only the number of phases grows.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import numpy as np
from benchmarks.speed.contest import Phase, load, ours, phase_of, test_rows
from benchmarks.speed.record import Record, seconds

from dsal.methods.closed_form.ds_al import DSAL

NAME, MINUTES = "phases", 6


def run(small: bool) -> Record:
    """Measure with d_B = 4096."""
    size, counts = (128, (5, 50)) if small else (4096, (5, 25, 50, 500))
    data = load(small)
    base = phase_of(data, range(50))
    first = ours(size)
    first.learn_rows(*base)
    state = first.state()
    record = Record(
        NAME,
        f"Seconds per phase over K, d_B = {size}, both streams, CIFAR-100 features",
        ("K", "rows", "first phases", "last phases", "last / first", "evaluation"),
        _plot,
        notes=["First and last: medians of a tenth of the phases, at least two; the weights are solved in each phase."],
    )
    for count in counts:
        method = DSAL.from_state(state)
        parts = _by_class(data, count) if count <= 5 or (count <= 50 and not small) else _shuffled(data, count)
        times = [seconds(partial(_learn, method, part)) for part in parts]
        evaluation = seconds(partial(method.predict, test_rows(data, 100)[0]))
        some = max(count // 10, 2)
        early, late = statistics.median(times[:some]), statistics.median(times[-some:])
        record.rows.append([count, len(parts[0].y), early, late, late / early, evaluation])
        record.raw[str(count)] = {"seconds": times, "evaluation": evaluation, "rows": [len(p.y) for p in parts]}
    return record


def _learn(method: DSAL, part: Phase) -> None:
    method.learn_rows(*part)
    method.scores(part.x[:1])


def _by_class(data: Any, count: int) -> list[Phase]:
    step = 50 // count
    return [phase_of(data, range(start, start + step)) for start in range(50, 100, step)]


def _shuffled(data: Any, count: int) -> list[Phase]:
    """Return the new classes' rows in random order, with columns numbered in order of arrival."""
    rows = np.random.RandomState(0).permutation(np.flatnonzero(data.train_y >= 50))
    _, arrival = np.unique(data.train_y[rows], return_index=True)
    place = np.empty(50, dtype=np.int64)
    place[np.argsort(arrival)] = np.arange(50)
    parts = []
    for some in np.array_split(rows, count):
        y = 50 + place[data.train_y[some] - 50]
        parts.append(Phase(data.train_x[some], y, np.unique(y).tolist()))  # type: ignore[arg-type]
    return parts


def _plot(record: Record, axes: Any) -> None:
    for count, measured in record.raw.items():
        times = measured["seconds"]
        axes.plot(np.linspace(0, 1, len(times)), times, label=f"K = {count}, {measured['rows'][0]} rows", linewidth=1)
    axes.set(xlabel="share of the phases", ylabel="seconds per phase", yscale="log")
    axes.legend(fontsize=8, ncol=4, loc="upper center", bbox_to_anchor=(0.5, -0.15))
