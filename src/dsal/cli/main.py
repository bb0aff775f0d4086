"""The command ``dsal``: its subcommands, output streams and exit codes.

Results go to stdout, progress and errors to stderr. Exit codes: 0 done; 2 a wrong option, name or value; 1 anything
else that went wrong; 130 stopped with Ctrl-C.

Commands import what they need when they run, so that ``dsal --help`` is fast.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dsal.base import __version__
from dsal.cli.compare import compare
from dsal.cli.correct import drop, forget, redo, relabel, rename, undo
from dsal.cli.learn import learn
from dsal.cli.models import check, export, info, merge
from dsal.cli.predict import evaluate, predict, suggest
from dsal.cli.pretrain import extract, pretrain
from dsal.cli.processes import end_with_parent, in_processes, out_of_memory
from dsal.cli.reproduce import reproduce
from dsal.cli.run import report, run, tune
from dsal.cli.say import say
from dsal.cli.serve import serve
from dsal.errors import DSALError, InputError

app = typer.Typer(
    name="dsal",
    help="Dual-stream analytic learning: new classes in closed form, no data kept.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_RESEARCH = (run, compare, pretrain, extract, report, reproduce, tune)
_OWN = (learn, predict, evaluate, suggest, info, check, undo, redo, rename, drop, relabel, merge, forget, export, serve)
_MANY_PROCESSES = (run, pretrain, extract, learn)  # under torchrun
for _panel, _commands in ((None, _RESEARCH), ("Own images", _OWN)):
    for _command in _commands:
        app.command(rich_help_panel=_panel)(in_processes(_command, many=_command in _MANY_PROCESSES))


def _version(wanted: bool) -> None:
    if wanted:
        say(f"dsal {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process and exit with its code."""
    end_with_parent()
    try:
        app()
    except (DSALError, OSError) as error:
        say(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except (MemoryError, ImportError, RuntimeError, SystemError) as error:
        if not out_of_memory(error):
            raise
        reason = str(error).strip().partition("\n")[0]
        say(f"error: out of memory{f': {reason}' if reason else ''}", err=True)
        sys.exit(1)
