"""The time left."""

from io import StringIO

from rich.console import Console
from rich.progress import Progress

from dsal.cli.display import TimeLeft


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_left_follows_the_work_and_counts_down() -> None:
    clock = Clock()
    column = TimeLeft()
    bar = Progress(column, console=Console(file=StringIO()), get_time=clock)
    task = bar.add_task("", total=100, completed=20)  # 20 were done before this process began

    def left() -> str:
        return column.render(bar.tasks[0]).plain

    assert left() == "-:--:--"
    clock.now = 10.0
    bar.update(task, completed=40)  # 20 in 10 s: 60 more take 30 s
    assert left() == "0:00:30"
    clock.now = 15.0
    assert left() == "0:00:25"
    clock.now = 100.0
    assert left() == "0:00:00"
    bar.update(task, completed=100)
    assert left() == "0:00:00"
