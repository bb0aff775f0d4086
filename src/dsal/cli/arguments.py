"""Options that several commands share; each is None unless given, so that files and presets can stand in for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

METHOD = "Options of the method"
HANDLING = "How to run, and where"

Text = str | None
Flag = bool | None


def option(help_text: str, default: str | bool = False, panel: str | None = None) -> Any:
    """An option with a value."""
    return typer.Option(help=help_text, show_default=default, rich_help_panel=panel)


def flag(name: str, help_text: str, panel: str | None = None) -> Any:
    """An option that is there or not."""
    return typer.Option(name, help=help_text, show_default=False, rich_help_panel=panel)


Dataset = Annotated[
    Text, option("Embedded features, a .safetensors file of features, or an image data set.", "cifar100-features")
]
DataRoot = Annotated[Path | None, option("Folder of the image data sets.")]
Download = Annotated[Flag, flag("--download", "Fetch an image data set that is not there.")]
Backbone = Annotated[Text, option("Architecture that the weights must be of.")]
Weights = Annotated[Text, option("File of weights or name of a backbone, for an image data set.")]
Features = Annotated[Text, option("Kind of features: last, stages or blocks.", "the widest there is")]
BaseClasses = Annotated[int | None, option("Classes of the base phase.", "half of them")]
ClassOrder = Annotated[Text, option("natural, or the seed of a permutation (1993).", "natural")]
Shots = Annotated[int | None, option("Training samples of each class after the base phase.", "all of them")]
EvalEvery = Annotated[int | None, option("Test after every so many phases, and after the last.", "1")]
Seeds = Annotated[Text, option("Seeds, with commas: 0,1,2. Each is a run.", "0")]
ExpansionSize = Annotated[int | None, option("Width d_B of the expansion.", "4096", METHOD)]
CheckpointSeconds = Annotated[float | None, option("Save the state after a phase, at most this often.", "30", HANDLING)]
Report = Annotated[Flag, flag("--report/--no-report", "Write the HTML page at the end.", HANDLING)]


def given(context: typer.Context, *without: str) -> dict[str, Any]:
    """The options of a command line that were given, paths as text, lists not empty."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in context.params.items()
        if value not in (None, [], ()) and name not in without
    }
