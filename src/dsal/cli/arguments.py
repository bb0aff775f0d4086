"""Options that several commands share.

Those of :data:`EXPERIMENT` are None unless given, so that a file or preset can supply them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

DATA = "Data and phases"
METHOD = "Options of the method"
RUNNING = "Running and output"
RARE = "Rare options"  # hidden in --help, shown by --help-all

Command = TypeVar("Command", bound=Callable[..., None])


def option(help_text: str, default: str | bool = True, panel: str | None = None, metavar: str | None = None) -> Any:
    """Declare an option with a value; ``default`` describes what a default of None means."""
    hidden = panel == RARE
    return typer.Option(help=help_text, show_default=default, rich_help_panel=panel, hidden=hidden, metavar=metavar)


def flag(name: str, help_text: str, panel: str | None = None) -> Any:
    """Declare a flag."""
    return typer.Option(name, help=help_text, show_default=False, rich_help_panel=panel, hidden=panel == RARE)


def _show_all(context: typer.Context, wanted: bool | None) -> None:
    """Print the help of a command with its hidden options."""
    if wanted:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]  # of options, not of arguments
        typer.echo(context.get_help())
        raise typer.Exit


def seeds_option(help_text: str, default: str, panel: str | None = None) -> Any:
    """Declare the option that takes one seed or several."""
    return typer.Option("--seeds", "--seed", help=help_text, show_default=default, rich_help_panel=panel)


_FOLDER = "Folder with the image data sets."
_FOLDER_DEFAULT = "DSAL_DATA, else ~/.cache/dsal"
_MISSING = "Download the image data set if it is missing."
_BACKBONE = "Name of a pretrained backbone (docs/backbones.md), or a file of weights; for images."
_ORDER = "Order of the classes: natural, or the seed of a permutation, such as 1993."

DataRoot = Annotated[Path | None, option(_FOLDER, _FOLDER_DEFAULT)]
Download = Annotated[bool, flag("--download", _MISSING)]
BackboneName = Annotated[str | None, option(_BACKBONE)]
ClassOrder = Annotated[str, option(_ORDER)]
Device = Annotated[str, option("Where networks run: auto, cpu, cuda, cuda:1, mps.")]

EXPERIMENT: dict[str, Any] = {
    "dataset": Annotated[
        str | None,
        option(
            "Embedded features, a file or folder of features (docs/reference/formats.md), or an image data set.",
            "cifar100-features",
            DATA,
        ),
    ],
    "data_root": Annotated[Path | None, option(_FOLDER, _FOLDER_DEFAULT, DATA)],
    "download": Annotated[bool | None, flag("--download", _MISSING, DATA)],
    "backbone": Annotated[str | None, option(_BACKBONE, panel=DATA)],
    "features": Annotated[
        str | None, option("Kind of features: last, stages or blocks.", "the widest available", DATA)
    ],
    "base_classes": Annotated[int | None, option("Number of classes in the base phase.", "half of them", DATA)],
    "class_order": Annotated[str | None, option(_ORDER, "natural", DATA)],
    "shots": Annotated[int | None, option("Training samples per class after the base phase.", "all", DATA)],
    "seeds": Annotated[str | None, seeds_option("One seed or several: 0,1,2. Each is one run.", "0", RUNNING)],
    "expansion_size": Annotated[int | None, option("Width d_B of the expansion.", "4096", METHOD)],
    "report": Annotated[bool | None, flag("--report/--no-report", "Write the HTML report at the end.", RUNNING)],
    "eval_every": Annotated[int | None, option("Test after every N-th phase, and after the last.", "1", RARE)],
    "confusions": Annotated[int | None, option("Keep confusion counts of at most N tests, evenly spaced.", "51", RARE)],
    "checkpoint_seconds": Annotated[
        float | None, option("Save the state after a phase, at most once in this many seconds.", "30", RARE)
    ],
    "help_all": Annotated[
        bool | None,
        typer.Option(
            "--help-all", callback=_show_all, is_eager=True, help="Show the rare options, too.", show_default=False
        ),
    ],
}
"""Options of both ``dsal run`` and ``dsal compare``."""


def takes(options: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Append options to a command's own; the command accepts them as ``**_`` and reads them with :func:`given`."""

    def extended(command: Command) -> Command:
        own = [p for p in signature(command, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [Parameter(name, own[0].kind, default=None, annotation=hint) for name, hint in options.items()]
        command.__signature__ = Signature([*own, *more])  # type: ignore[attr-defined]  # where typer looks
        return command

    return extended


def given(context: typer.Context, *without: str) -> dict[str, Any]:
    """Return the options given on the command line, with paths as text and without empty lists."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in context.params.items()
        if value not in (None, [], ()) and name not in without
    }
