"""``dsal bench``: how fast this machine learns, and what limits it."""

from __future__ import annotations

from typing import Annotated

import typer


def bench(
    expansion_size: Annotated[int, typer.Option(min=64, help="Width d_B to measure with.")] = 2048,
    rows: Annotated[int, typer.Option(min=1, help="Rows per phase.")] = 1000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how fast this machine learns, compared with bare BLAS and LAPACK, and show the bottleneck."""
    from dataclasses import asdict
    from json import dumps

    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from dsal.analytic.speed import measure
    from dsal.cli.table import print_table
    from dsal.protocol.provenance import environment, peak_memory_bytes

    machine = measure(expansion_size, rows)
    conditions, parts = environment(), (*machine.calls, machine.base, machine.phase)
    if json:
        record = {
            **asdict(machine),
            "gflops": {part.name: part.gflops for part in parts},
            "limit": machine.limit,
            "crowded": machine.crowded,
            "widest": machine.widest,
            "peak_memory_bytes": peak_memory_bytes(),
            "environment": conditions,
        }
        typer.echo(dumps(record, indent=1))
        return
    table = Table(
        *("", "GFLOP/s", "seconds"),
        title=f"d_B = {machine.size}, {machine.rows} rows; {conditions['cpu']}, {conditions['threads']} threads",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for part in parts:
        bare = part in machine.calls
        name = f"bare {part.name}" if bare else f"dsal, {part.name}, both streams"
        table.add_row(name, f"{part.gflops:.1f}", f"{part.seconds:.3f}", style="dim" if bare else "")
    print_table(table)
    typer.echo(f"limited by {machine.limit}.")
    if machine.crowded:
        typer.echo(f"{machine.crowded}.")
    if machine.available is not None:
        fits = "no common d_B fits" if machine.widest is None else f"d_B up to {machine.widest} fits"
        typer.echo(f"memory: {machine.available / 1e9:.1f} GB available; {fits}.")
