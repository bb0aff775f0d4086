"""``dsal report``: one page about one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders that `dsal run --out` has written.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report.", show_default="DIR, or ./report for several")
    ] = None,
) -> None:
    """Write one self-contained HTML page, and its figures as PNG and PDF."""
    from dsal.report.page import build_report

    folder = out or (runs[0] if len(runs) == 1 else Path("report"))
    typer.echo(build_report(runs, folder))
