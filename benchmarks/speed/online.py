"""Learning one sample or ten at a time, against solving from scratch."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.speed.contest import load, ours
from benchmarks.speed.record import Record, in_turns, medians, seconds

NAME, MINUTES = "online", 2
ROUNDS = 5


def run(small: bool) -> Record:
    """Measure with d_B = 8192 and 100 classes; the weights are ready after every update."""
    from scipy.linalg import blas, lapack

    size = 256 if small else 8192
    data = load(small)
    rows = np.random.RandomState(0).permutation(len(data.train_y))
    some, rest = rows[: len(rows) // 10], iter(rows[len(rows) // 10 :].tolist())
    method = ours(size)
    method.learn_rows(data.train_x[some], data.train_y[some], range(100))
    method.scores(data.test_x[:1])

    def learn(count: int) -> None:
        chosen = [next(rest) for _ in range(count)]
        method.learn_rows(data.train_x[chosen], data.train_y[chosen], sorted(set(data.train_y[chosen].tolist())))
        method.scores(data.test_x[:1])

    gram = np.zeros((size, size), order="F")
    targets = np.ones((size, 100), order="F")
    block = np.asfortranarray(np.random.RandomState(1).standard_normal((512, size)))

    def solve_anew() -> None:
        for _ in range(2):  # streams
            np.fill_diagonal(gram, 1e4)
            lapack.dpotrf(gram, clean=0, overwrite_a=1)
            lapack.dpotrs(gram, targets)

    learn(1)  # from here on updates carry the weights along
    work = {"1 sample": lambda: learn(1), "10 samples": lambda: learn(10), "solve anew, Gram matrices kept": solve_anew}
    taken = in_turns(work, range(2 if small else ROUNDS))
    median = medians(taken)
    gram_rows = seconds(lambda: blas.dsyrk(1.0, block, beta=1.0, c=gram, trans=1, overwrite_c=1)) / len(block)
    anew = "solve anew, Gram matrices kept"
    median["solve anew, from all rows"] = median[anew] + 2 * len(rows) * gram_rows
    record = Record(
        NAME,
        f"Learning single samples, d_B = {size}, 100 classes, both streams, weights ready after each",
        ("", "seconds", "share of solving anew", "of solving anew from all rows"),
        _plot,
        raw={**taken, "gram seconds a row and stream": gram_rows},
    )
    for name, value in median.items():
        record.rows.append([name, value, value / median[anew], value / median["solve anew, from all rows"]])
    record.notes = [
        "Solving anew, Gram matrices kept: Cholesky and solves in bare LAPACK, the least that anyone could do.",
        f"From all rows: the Gram matrices of {len(rows)} rows added, from the measured time of 512 rows.",
    ]
    return record


def _plot(record: Record, axes: Any) -> None:
    bars = axes.barh([row[0] for row in record.rows][::-1], [row[1] for row in record.rows][::-1], log=True)
    axes.bar_label(bars, fmt="%.2f s", padding=3)
    axes.set(xlabel="seconds", xlim=(None, 4 * max(row[1] for row in record.rows)))
