"""``dsal report``: an HTML page about one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.say import say


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders written by `dsal run --out`.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report.", show_default="DIR, or ./report for several")
    ] = None,
) -> None:
    """Write a self-contained HTML report of one or more runs, and its figures as PNG and PDF."""
    from dsal.report.page import build_report

    folder = out or (runs[0] if len(runs) == 1 else Path("report"))
    say(build_report(runs, folder))
