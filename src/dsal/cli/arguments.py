"""Options that several commands share; each is None unless given, so that a file or preset can supply it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

METHOD = "Options of the method"
HANDLING = "Running and output"

Text = str | None
Flag = bool | None
Command = TypeVar("Command", bound=Callable[..., None])


def option(help_text: str, default: str | bool = False, panel: str | None = None) -> Any:
    """Declare an option with a value."""
    return typer.Option(help=help_text, show_default=default, rich_help_panel=panel)


def flag(name: str, help_text: str, panel: str | None = None) -> Any:
    """Declare a flag."""
    return typer.Option(name, help=help_text, show_default=False, rich_help_panel=panel)


EXPERIMENT: dict[str, Any] = {
    "dataset": Annotated[
        Text,
        option(
            "Embedded features, a file or folder of features (docs/reference/formats.md), or an image data set.",
            "cifar100-features",
        ),
    ],
    "data_root": Annotated[Path | None, option("Folder with the image data sets.")],
    "download": Annotated[Flag, flag("--download", "Download the image data set if it is missing.")],
    "backbone": Annotated[Text, option("Architecture; weights of another one are refused.")],
    "weights": Annotated[Text, option("File of weights or name of a backbone, for an image data set.")],
    "features": Annotated[Text, option("Kind of features: last, stages or blocks.", "the widest available")],
    "base_classes": Annotated[int | None, option("Number of classes in the base phase.", "half of them")],
    "class_order": Annotated[Text, option("natural, or the seed of a permutation, such as 1993.", "natural")],
    "shots": Annotated[int | None, option("Training samples per class after the base phase.", "all")],
    "eval_every": Annotated[int | None, option("Test after every N-th phase, and after the last.", "1")],
    "confusions": Annotated[int | None, option("Keep confusion counts of at most N tests, evenly spaced.", "51")],
    "seeds": Annotated[Text, option("Seeds, separated by commas: 0,1,2. Each is one run.", "0")],
    "expansion_size": Annotated[int | None, option("Width d_B of the expansion.", "4096", METHOD)],
    "checkpoint_seconds": Annotated[
        float | None, option("Save the state after a phase, at most once in this time.", "30", HANDLING)
    ],
    "report": Annotated[Flag, flag("--report/--no-report", "Write the HTML report at the end.", HANDLING)],
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
