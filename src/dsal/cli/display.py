"""Progress of a run: a bar with the time left, and one line per phase."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

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

from dsal.cli.processes import leads
from dsal.cli.say import printable

if TYPE_CHECKING:
    from dsal.protocol.experiment import OnPreparing, Setting
    from dsal.protocol.runs import Step

T = TypeVar("T")


class TimeLeft(ProgressColumn):
    """The time left at the average speed so far; counts down between two reports.

    Rich's own column needs several reports within half a minute, and phases can take longer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[TaskID, float] = {}
        self._last: dict[TaskID, tuple[float, float]] = {}  # work done, and when that was reported

    def render(self, task: Task) -> Text:
        """Return the column's text for one bar."""
        elapsed, first = task.elapsed or 0.0, self._first.setdefault(task.id, task.completed)
        if task.completed != self._last.get(task.id, (first, 0.0))[0]:
            self._last[task.id] = task.completed, elapsed
        if task.id not in self._last or task.remaining is None:
            return Text("-:--:--")
        done, when = self._last[task.id]
        seconds = when * task.remaining / (done - first) - (elapsed - when)
        return Text(str(timedelta(seconds=max(0, round(seconds)))))


class Bar(Progress):
    """Progress that prints nothing at all if it is disabled: Rich before 14.3 ends even then with an empty line."""

    def stop(self) -> None:
        """Remove the bar, if there is one."""
        if not self.disable:
            super().stop()


class Display:
    """Progress on stderr, with a bar if it is a terminal. With many processes, only rank 0 shows anything."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, quiet=not leads())

    def note(self, text: str) -> None:
        """Print one line of plain text."""
        self.console.print(printable(text), markup=False, soft_wrap=True)

    @contextmanager
    def preparation(self) -> Iterator[OnPreparing]:
        """Show one bar per task, from its first report on."""
        with self.bar() as bar:
            tasks: dict[str, TaskID] = {}

            def report(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bar.add_task(what, total=total)
                bar.update(tasks[what], completed=done)

            yield report

    def follow(self, steps: Generator[Step, None, T], setting: Setting) -> T:
        """Show every finished phase, and the progress within the current one; return what the steps return."""
        from dsal.protocol import metrics  # here, because commands on own images do without PyTorch
        from dsal.protocol.phases import PhaseProgress, is_tested

        scenario, seeds, every = setting.scenario, setting.experiment.seeds, setting.experiment.eval_every
        # Work of a phase in rows: learning a row costs about ten times as much as testing it. Shown with the next test.
        train_y, test_y = setting.data.train.labels, setting.data.test.labels
        learning = [10 * rows for rows in scenario.phase_sizes(train_y)]
        testing = list(accumulate(scenario.phase_sizes(test_y)))
        work, before, waiting = {}, [], 0  # before: learned since the last test, when phase k begins
        for k, rows in enumerate(learning):
            before.append(waiting)
            waiting += rows
            if is_tested(k, scenario, every):
                work[k], waiting = waiting + testing[k], 0
        accuracies: dict[int, list[float]] = {seed: [] for seed in seeds}
        with self.bar() as bar:
            left, finished = sum(work.values()) * len(seeds), 0
            task = bar.add_task(f"phase 0/{scenario.last}", total=left)
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                result, so_far = step.result, accuracies[step.seed]
                if isinstance(result, PhaseProgress):
                    now = result.progress
                    inside = before[result.phase] + learning[result.phase] * now.done // now.total
                    text = f"phase {result.phase}/{scenario.last}  {now.note}"
                    bar.update(task, completed=finished + inside, description=text)
                    continue
                so_far.append(metrics.accuracy(result.tally))
                seconds = result.learn_seconds + result.evaluate_seconds
                cost = "from the stopped run" if step.restored else f"{seconds:6.2f} s"
                self.note(
                    (f"seed {step.seed}  " if len(seeds) > 1 else "")
                    + f"phase {result.phase:>2}/{scenario.last}  {len(result.tally):>4} classes  "
                    f"accuracy {so_far[-1]:6.2f}  average {sum(so_far) / len(so_far):6.2f}  {cost}"
                )
                following = f"phase {min(result.phase + 1, scenario.last)}/{scenario.last}"
                if step.restored:  # not done by this run
                    left -= work[result.phase]
                    bar.update(task, total=left, description=following)
                else:
                    finished += work[result.phase]
                    bar.update(task, completed=finished, description=following)

    def bar(self) -> Progress:
        """Return a bar with the time left."""
        return Bar(
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
