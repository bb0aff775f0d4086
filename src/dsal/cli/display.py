"""What a run shows while it runs: a bar with the time left, and a line for each phase."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from dsal.distributed import current
from dsal.evaluation import metrics
from dsal.evaluation.experiment import OnPreparing, Setting
from dsal.evaluation.protocol import PhaseProgress, is_tested
from dsal.evaluation.runner import Step


class TimeLeft(ProgressColumn):
    """The time left if work goes on as it has since the bar appeared; counts down between two reports.

    Rich's own column wants several reports within half a minute, which phases and seeds do not give.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[TaskID, float] = {}
        self._last: dict[TaskID, tuple[float, float]] = {}  # work done, and when that was reported

    def render(self, task: Task) -> Text:
        """The column's text for one bar."""
        elapsed, first = task.elapsed or 0.0, self._first.setdefault(task.id, task.completed)
        if task.completed != self._last.get(task.id, (first, 0.0))[0]:
            self._last[task.id] = task.completed, elapsed
        if task.id not in self._last or task.remaining is None:
            return Text("-:--:--")
        done, when = self._last[task.id]
        seconds = when * task.remaining / (done - first) - (elapsed - when)
        return Text(str(timedelta(seconds=max(0, round(seconds)))))


class Display:
    """Progress on stderr; a bar only where somebody is looking. Of many processes, rank 0 alone shows anything."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, quiet=not current().leads)

    def note(self, text: str) -> None:
        """One line of plain text."""
        self.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def preparation(self) -> Iterator[OnPreparing]:
        """A bar for each thing that takes long, from its first report on."""
        with self.bar() as bar:
            tasks: dict[str, TaskID] = {}

            def report(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bar.add_task(what, total=total)
                bar.update(tasks[what], completed=done)

            yield report

    def follow(self, steps: Iterator[Step], setting: Setting) -> None:
        """Show every phase as it is done, and how far the bar has come inside of one."""
        scenario, seeds, every = setting.scenario, setting.experiment.seeds, setting.experiment.eval_every
        # Work of a phase in rows: a row to learn costs about ten times a row to test. It is shown with the next test.
        train_y, test_y = setting.data.train.labels, setting.data.test.labels
        learning = [10 * len(scenario.phase_rows(train_y, k)) for k in range(len(scenario.phases))]
        work, before, waiting = {}, [], 0  # before: learned since the last test, when phase k begins
        for k, rows in enumerate(learning):
            before.append(waiting)
            waiting += rows
            if is_tested(k, scenario, every):
                work[k], waiting = waiting + len(scenario.seen_rows(test_y, k)), 0
        accuracies: dict[int, list[float]] = {seed: [] for seed in seeds}
        with self.bar() as bar:
            left, finished = sum(work.values()) * len(seeds), 0
            task = bar.add_task(f"phase 0/{scenario.last}", total=left)
            for step in steps:
                result, so_far = step.result, accuracies[step.seed]
                if isinstance(result, PhaseProgress):
                    now = result.progress
                    inside = before[result.phase] + learning[result.phase] * now.done // now.total
                    text = f"phase {result.phase}/{scenario.last}  {now.note}"
                    bar.update(task, completed=finished + inside, description=text)
                    continue
                so_far.append(metrics.accuracy(result.counts))
                seconds = result.learn_seconds + result.evaluate_seconds
                cost = "from the stopped run" if step.restored else f"{seconds:6.2f} s"
                self.note(
                    (f"seed {step.seed}  " if len(seeds) > 1 else "")
                    + f"phase {result.phase:>2}/{scenario.last}  {len(result.counts):>4} classes  "
                    f"accuracy {so_far[-1]:6.2f}  average {sum(so_far) / len(so_far):6.2f}  {cost}"
                )
                following = f"phase {min(result.phase + 1, scenario.last)}/{scenario.last}"
                if step.restored:  # no work of this run
                    left -= work[result.phase]
                    bar.update(task, total=left, description=following)
                else:
                    finished += work[result.phase]
                    bar.update(task, completed=finished, description=following)

    def bar(self) -> Progress:
        """A bar with the time that is left."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeLeft(),
            console=self.console,
            disable=self.console.quiet or not self.console.is_terminal,
            transient=True,
        )
