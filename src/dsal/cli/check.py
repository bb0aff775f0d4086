"""``dsal check``: whether a model file is whole, and what is left of a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.say import say


def check(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `dsal learn`.")],
) -> None:
    """Check every checksum and every invariant of a model file; of a damaged one, say what is whole.

    Nothing is written. The exit code is 0 for a whole file and 1 for a damaged one.
    """
    from dsal.files.model_schema import IMAGE_MODEL
    from dsal.files.tensors import damaged_arrays
    from dsal.image_model import ImageModel

    facts, whole, damaged = damaged_arrays(model, IMAGE_MODEL)
    if not damaged:
        ImageModel.load(model)  # shapes, values, and the fingerprint of the backbone
        say(f"{model} is whole: {len(whole)} arrays, {len(facts['counts'])} classes")
        return
    say(f"{model} is damaged: {len(damaged)} of {len(whole) + len(damaged)} arrays are not what was written")
    parts = {name: f"the {name}" for name in ("backbone", "classifier", "novelty")}
    for part, title in parts.items():
        bad = [name for name in damaged if name.startswith(f"{part}.")]
        say(f"  {title}: {f'damaged ({len(bad)} arrays)' if bad else 'whole'}")
    shared = [name for name in damaged if name.startswith(("backbone.", "classifier.expansion."))]
    good = [
        version["change"]
        for number, version in enumerate(facts["history"])
        if not shared and not any(name.startswith(f"history.{number}.") for name in damaged)
    ]
    if good:
        say(f"  the version before {good[-1]!r} is whole: it is in the history of the file")
    else:
        say("  no earlier version in its history is whole: use a copy of the file")
    raise typer.Exit(1)
