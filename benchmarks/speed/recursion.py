"""Our method against the recursion of the authors' code, and against bare BLAS and LAPACK calls.

Time depends only on the shapes: rows, classes and d_B. So the base phase of the recursion is measured on one full batch
and on the last, shorter one, and a run of K phases on a few of its phases. The notes say how the totals were computed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed import flops
from benchmarks.speed.contest import (
    BATCH,
    Official,
    Phase,
    Recursion,
    bare_calls,
    batches,
    load,
    ours,
    phase_of,
    test_rows,
)
from benchmarks.speed.record import Record, in_turns, medians, seconds

NAME, MINUTES = "recursion", 11
ROUNDS = 3


def run(small: bool, official: Path | None = None) -> Record:
    """Measure at d_B = 8192, for K = 25 and 50."""
    size, batch = (256, 512) if small else (8192, BATCH)
    data = load(small)
    base = phase_of(data, range(50))
    method = ours(size)
    taken: dict[str, Any] = {"ours base": seconds(lambda: method.learn_rows(base.x, base.y, base.classes))}
    learner = method._learner
    taken["ours base"] += seconds(lambda: learner.weights)
    taken["ours base evaluation"] = seconds(lambda: method.predict(test_rows(data, 50)[0]))
    floor = bare_calls(size, base.x.shape[1], learner.block_rows)
    taken["floor base"] = seconds(lambda: floor(len(base.y), 50, True))
    rivals: dict[str, Any] = {"recursion": Recursion(learner.built().projection)}
    if official is not None:
        rivals["official"] = Official(official, learner.built().projection)
    for name, rival in rivals.items():
        first, *_, last = batches(base, batch)
        full, rest = (seconds(partial(rival.learn_batch, *part)) for part in (first, last))
        taken[f"{name} batches"] = {str(len(first.y)): full, str(len(last.y)): rest}
        taken[f"{name} base"] = len(base.y) // batch * full + rest
        taken[f"{name} base evaluation"] = seconds(lambda rival=rival: rival.predict(test_rows(data, 50)[0]))
    record = Record(
        NAME,
        f"Learning and evaluation, d_B = {size}, both streams, float64, CIFAR-100 features",
        ("K", "", "base s", "phase s", "evaluation s", "run s", "x ours", "x ours by flops"),
        _plot,
    )
    seen = 50
    for phases in (25, 50):
        step = 50 // phases
        contest: dict[str, list[float]] = {}
        for turn in range(ROUNDS):
            phase = phase_of(data, range(seen, seen + step))
            seen += step
            once = in_turns(_contestants(phase, method, rivals, floor, data), range(turn, turn + 1))
            for name, times in once.items():
                contest.setdefault(name, []).extend(times)
        taken[f"K={phases}"] = contest
        _add_rows(record, phases, contest, taken, [*rivals], size, (len(base.y), step * len(base.y) // 50))
    record.raw = taken
    record.notes += [
        f"Base phase of the recursion: one batch of {batch} rows and the last one measured, the others added as equal.",
        f"A run is the base phase and K times the median of {ROUNDS} phases; contestants took turns, in another order "
        "each time.",
        "Evaluation: test samples of the first 75 classes, as in mid-run; the floor is compared with learning alone.",
        "'ours' includes everything that Python does; 'floor' is BLAS and LAPACK calls of the same shapes alone.",
    ]
    return record


def _contestants(phase: Phase, method: Any, rivals: dict[str, Any], floor: Any, data: Any) -> dict[str, Any]:
    seen = phase.classes.stop
    x = test_rows(data, 75)[0]  # as in the middle of a run

    def learn() -> None:
        method.learn_rows(*phase)
        method.scores(x[:1])  # the weights are solved on first use, which counts as learning

    work: dict[str, Any] = {
        "ours": learn,
        "floor": lambda: floor(len(phase.y), seen, False),
        "ours evaluation": lambda: method.predict(x),
    }
    for name, rival in rivals.items():
        work[name] = lambda rival=rival: rival.learn_batch(*phase)
        work[f"{name} evaluation"] = lambda rival=rival: rival.predict(x)
    return work


def _add_rows(
    record: Record,
    phases: int,
    contest: dict[str, list[float]],
    taken: dict[str, Any],
    rivals: list[str],
    size: int,
    rows: tuple[int, int],
) -> None:
    median = medians(contest)
    totals: dict[str, float] = {}
    for name in ("ours", "floor", *rivals):
        evaluation = median.get(f"{name} evaluation", 0.0)
        totals[name] = taken[f"{name} base"] + taken.get(f"{name} base evaluation", 0.0)
        totals[name] += phases * (median[name] + evaluation)
    learning = taken["ours base"] + phases * median["ours"]
    counted = flops.ratio(size, phases, rows=rows[0])
    for name in totals:
        record.rows.append(
            [
                phases,
                name,
                taken[f"{name} base"],
                median[name],
                median.get(f"{name} evaluation"),
                totals[name],
                totals[name] / (learning if name == "floor" else totals["ours"]),
                counted if name in rivals else None,
            ]
        )
    record.notes.append(
        f"K = {phases}, phases of {rows[1]} rows: learning takes {learning / totals['floor']:.2f} times the floor "
        f"(a phase {median['ours'] / median['floor']:.2f}); evaluation adds "
        f"{100 * median['ours evaluation'] / median['ours']:.0f}% to a phase; "
        f"a phase took {min(contest['ours']):.2f} to {max(contest['ours']):.2f} s."
    )


def _plot(record: Record, axes: Any) -> None:
    names = [f"{row[1]}, K = {row[0]}" for row in record.rows]
    bars = axes.barh(names[::-1], [row[5] for row in record.rows][::-1])
    axes.bar_label(bars, fmt="%.0f s", padding=3)
    axes.set(xlabel="seconds of a run, learning and evaluation")
