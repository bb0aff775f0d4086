"""``dsal info``, ``check``, ``merge`` and ``export``: what is in a model file, and what can be made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsal.cli.arguments import flag, option
from dsal.cli.image_model import Model, Wait, load_model, say_knows
from dsal.cli.say import say, say_json
from dsal.errors import FileFormatError, InputError


def info(model: Model, json: Annotated[bool, flag("--json", "Print one JSON object.")] = False) -> None:
    """Show the classes of a model, the number of images of each, and its settings and sizes."""
    from dsal.files.model_schema import IMAGE_MODEL
    from dsal.files.tensors import damaged_arrays

    facts, _, damaged = damaged_arrays(model, IMAGE_MODEL)
    if damaged:
        raise FileFormatError(f"{model} was changed after it was written: see dsal check {model}")
    head, card, counts = facts["classifier"], facts["card"], facts["counts"]
    record = {
        "path": str(model),
        "bytes": model.stat().st_size,
        "dsal": facts["dsal"],
        "backbone": card["architecture"],
        "backbone_sha256": facts["backbone_sha256"],
        "image_size": card["size"],
        "features": head["features"],
        "expansion_size": head["params"]["expansion_size"],
        "gamma": head["gammas"][0],
        "compensation": facts["compensation"],
        "learns_on": head["learning"],
        "phases": head["phases"],
        "version": facts["version_id"],
        "undo": [version["change"] for version in facts["history"]],
        "redo": [version["change"] for version in facts["undone"]],
        "images": sum(counts.values()),
        "classes": counts,
    }
    if json:
        say_json(record)
        return
    for name, value in record.items():
        if name == "classes":
            say(f"classes: {len(counts)}")
            for label, images in counts.items():
                say(f"  {label}: {images}")
        elif name == "learns_on":
            say(f"can learn more: {'yes' if head['learning'] else 'no, it was saved without its learning part'}")
        elif name in ("undo", "redo"):
            say(f"{name}: {'; '.join(record[name]) or 'nothing'}")
        else:
            say(f"{name.replace('_', ' ')}: {value}")


def check(
    model: Model,
    save: Annotated[Path | None, option("Where to write the last intact version of a damaged file.")] = None,
) -> None:
    """Check every checksum and every invariant of a model file; for a damaged one, say what is intact.

    The file itself stays as it is. The exit code is 0 if it is intact and 1 if it is damaged.
    """
    from dsal.files.model_schema import IMAGE_MODEL
    from dsal.files.tensors import damaged_arrays, open_tensors
    from dsal.image_model import ImageModel
    from dsal.image_model.image_predictor import check_predicts
    from dsal.image_model.sources import plural
    from dsal.image_model.stored_model import StoredModel

    if save is not None and save.exists():
        raise InputError(f"{save} exists already: choose another name")
    facts, whole, damaged = damaged_arrays(model, IMAGE_MODEL)
    if not damaged:
        check_predicts(ImageModel.load(model))  # shapes, values, and the fingerprint of the backbone
        say(f"{model} is intact: {len(whole)} arrays, {plural(len(facts['counts']), 'class')}")
        return
    say(f"{model} is damaged: {len(damaged)} of {len(whole) + len(damaged)} arrays are not what was written")
    for part in ("backbone", "classifier", "novelty"):
        bad = [name for name in damaged if name.startswith(f"{part}.")]
        say(f"  the {part}: {f'damaged ({len(bad)} arrays)' if bad else 'intact'}")
    with open_tensors(model, IMAGE_MODEL, truncated=True) as opened:
        stored = StoredModel.of({**opened.arrays}, opened.facts)
        change = stored.restore(damaged)
        if change is None:
            say("  no earlier version in its history is intact: use a copy of the file")
        elif save is None:
            say(f"  the version before {change!r} is intact: write it to another file with --save FILE")
        else:
            stored.write(save)
            say(f"  the version before {change!r} is intact: it is now in {save}")
    raise typer.Exit(1)


def merge(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL MODEL...", help="Model files written by `dsal learn`.")
    ],
    out: Annotated[Path, option("The model file to write; may be one of the inputs.")],
    again: Annotated[bool, flag("--again", "Merge even if models share images; these count once per model.")] = False,
    wait: Wait = None,
) -> None:
    """Merge models that were taught in different places.

    They need the same backbone, expansion size and seed. The main stream is then exactly that of all images together;
    the compensation stream differs, because each model took residues against its own weights.
    """
    from dsal.files.atomic import check_writable
    from dsal.files.lock import model_lock

    if out.exists():
        check_writable(out)
    if len(models) < 2:
        raise InputError("give at least two models to merge")
    if len({path.resolve() for path in models}) < len(models):
        raise InputError("a model cannot merge with itself: its images would count twice")
    for path in models:
        if not path.is_file():
            raise FileNotFoundError(f"no such file: {path}")

    first, *others = models
    with model_lock(out, wait):
        merged = load_model(first)
        for path in others:
            merged.merge(load_model(path), again=again)
        merged.save(out)
    say(say_knows(out, merged))
    say("probabilities and novelty are estimated from the merged sums; the next lesson measures them again")


def export(
    model: Model,
    onnx: Annotated[Path | None, option("ONNX file to write.")] = None,
    torch: Annotated[Path | None, option("torch.export file to write.")] = None,
    web: Annotated[
        Path | None, option("Folder to write: a page that classifies in any browser.", False, metavar="DIR")
    ] = None,
    zip: Annotated[Path | None, option("The same folder as one zip file, with examples.")] = None,
    runtime: Annotated[
        str | None,
        option(
            "Where the page gets onnxruntime-web: a folder to copy it from, or an https address.",
            "npm install in the folder",
            metavar="DIR|URL",
        ),
    ] = None,
) -> None:
    """Export a model as one graph, from pixels to logits, probabilities and novelty; or as a page around that graph."""
    if onnx is None and torch is None and web is None and zip is None:
        raise InputError("nothing to write: give --onnx FILE, --torch FILE, --web DIR or --zip FILE")
    if runtime is not None and web is None and zip is None:
        raise InputError("--runtime needs --web DIR or --zip FILE")
    from dsal.files.atomic import check_writable
    from dsal.image_model.graph_export import OUTPUTS, export_onnx, export_torch
    from dsal.image_model.sources import plural
    from dsal.image_model.web_export import INSTALLED, export_web, export_zip

    for path in (onnx, torch, zip):
        if path is not None:
            check_writable(path)
    taught = load_model(model)
    card = taught.backbone.card
    for path, write in ((onnx, export_onnx), (torch, export_torch)):
        if path is not None:
            write(taught, path)
            say(
                f"{path}: images (n, {card.in_channels}, {card.size}, {card.size}) uint8 to {', '.join(OUTPUTS)} of "
                f"{plural(len(taught.classes), 'class')}"
            )
    for path, write_page in ((web, export_web), (zip, export_zip)):
        if path is not None:
            write_page(taught, path, model.stem, runtime)
            say(f"{path}: a page for {plural(len(taught.classes), 'class')}; README.md in it says how to open it")
            if runtime is None:
                say(f"it needs {INSTALLED}: run npm install in the folder, or export with --runtime")
