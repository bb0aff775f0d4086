"""Accuracy of whole runs: the paper's algorithm phase by phase, and with the batches of the authors' code.

In exact arithmetic, the authors' recursion on batches of 4,096 rows equals our method with each batch learned as a
separate phase. So its accuracy can be measured without its cost. A test checks that the transcription agrees.
"""

from __future__ import annotations

from typing import Any

from benchmarks.speed.contest import BATCH, Phase, batches, load, ours, phase_of, test_rows
from benchmarks.speed.record import Record, seconds

NAME, MINUTES = "accuracy", 11


def run(small: bool) -> Record:
    """Run the base phase and K = 25 phases with d_B = 8192, both ways."""
    size, phases = (256, 5) if small else (8192, 25)
    data = load(small)
    step = 50 // phases
    parts = [phase_of(data, range(50)), *(phase_of(data, range(s, s + step)) for s in range(50, 100, step))]
    record = Record(
        NAME,
        f"Accuracy in percent of whole runs, d_B = {size}, K = {phases}, CIFAR-100 features",
        ("", "average", "last", "learning s", "evaluation s"),
        _plot,
    )
    for name, batch in (("ours", len(parts[0].y)), ("the authors' batches", 512 if small else BATCH)):
        curve, learning, evaluation = _run(size, parts, batch, data)
        record.rows.append([name, f"{sum(curve) / len(curve):.2f}", f"{curve[-1]:.2f}", learning, evaluation])
        record.raw[name] = {"accuracy": curve, "learning": learning, "evaluation": evaluation}
    record.notes.append("The times of the second row are those of our code on those batches, not of the recursion.")
    return record


def _run(size: int, parts: list[Phase], batch: int, data: Any) -> tuple[list[float], float, float]:
    method, curve, learning, evaluation = ours(size), [], 0.0, 0.0
    for phase in parts:

        def learn(phase: Phase = phase) -> None:
            for part in batches(phase, batch):
                method.learn_rows(*part)
            method.scores(phase.x[:1])

        learning += seconds(learn)
        x, y = test_rows(data, phase.classes.stop)
        evaluation += seconds(lambda x=x, y=y: curve.append(100 * float((method.predict(x) == y).mean())))
    return curve, learning, evaluation


def _plot(record: Record, axes: Any) -> None:
    for name, run in record.raw.items():
        axes.plot(run["accuracy"], "o-", markersize=3, label=name)
    axes.set(xlabel="phase", ylabel="accuracy, percent")
    axes.legend()
