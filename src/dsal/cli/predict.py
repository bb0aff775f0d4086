"""``dsal predict``, ``evaluate`` and ``suggest``: what a model makes of images."""

from __future__ import annotations

import csv
import json as json_
import math
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsal.cli.arguments import Device, flag, option
from dsal.cli.image_model import (
    Model,
    NamedImages,
    SkipBroken,
    Source,
    broken_option,
    load_predictor,
    named_images,
    say_broken,
)
from dsal.cli.say import say, say_json
from dsal.errors import InputError

if TYPE_CHECKING:
    from dsal.image_model.outcomes import Prediction


def predict(
    model: Model,
    images: NamedImages,
    top_k: Annotated[int, option("How many of the most likely classes to print.")] = 5,
    threshold: Annotated[float, option("Report an image as unknown if its novelty is above this.")] = 0.95,
    json: Annotated[bool, flag("--json", "Print one JSON list at the end.")] = False,
    json_lines: Annotated[bool, flag("--json-lines", "Print one JSON object per line, as soon as ready.")] = False,
    as_csv: Annotated[bool, flag("--csv", "Print one CSV line per image, as soon as ready.")] = False,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Predict the class of images, or report them as unknown.

    Novelty is the fraction of the learned images that look less unusual than this one.
    """
    if json + json_lines + as_csv > 1:
        raise InputError("choose one of --json, --json-lines and --csv")
    paths = named_images(images)
    from dsal.image_model.predictor import check_question

    check_question(top_k, threshold)
    skipped: list[str] = []
    question = {"top_k": top_k, "threshold": threshold, "broken": broken_option(skip_broken)}
    answers = _answers(model, paths, device, skipped, question)
    if json:
        say_json([_record(answer) for answer in answers])
    elif as_csv:
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(["path", "label", "score", "novelty", "novel"])
        for answer in answers:
            table.writerow([answer.path, answer.label, answer.score, answer.novelty, int(answer.novel)])
            sys.stdout.flush()
    else:
        for answer in answers:
            say(json_.dumps(_record(answer), ensure_ascii=False) if json_lines else _line(answer))
    say_broken(skipped)


def _answers(
    model: Path, paths: tuple[Path, ...], device: str, skipped: list[str], question: dict[str, Any]
) -> Iterator[Prediction]:
    """Yield answers as they are made; append what could not be read to ``skipped``."""
    for answer in load_predictor(model, device).predictions(paths, **question):
        if isinstance(answer, str):
            skipped.append(answer)
        else:
            yield answer


def _record(answer: Prediction) -> dict[str, Any]:
    """Return an answer as a JSON object: see docs/own-images.md."""
    return {"path": str(answer.path), **answer.facts()}


def _number(value: float) -> float | None:
    """Return a value that JSON can hold: null for NaN."""
    return None if math.isnan(value) else value


def _line(answer: Prediction) -> str:
    """Format an answer as one line for people."""
    ranked = "  ".join(f"{label} {score:.2f}" for label, score in answer.top_k)
    unknown = "unknown; nearest: " if answer.novel else ""
    return f"{answer.path}: {unknown}{ranked}  (novelty {answer.novelty:.2f})"


def evaluate(
    model: Model,
    source: Source,
    json: Annotated[bool, flag("--json", "Print one JSON object, with confusion counts.")] = False,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Measure accuracy on held-out images; images of classes that were never taught should be flagged as unknown."""
    from dsal.data.images.labelled_files import passed_over_text, read_files

    files = read_files(source)

    from dsal.cli.display import Display

    display = Display()
    taught = load_predictor(model, device)
    with display.preparation() as progress:
        broken = broken_option(skip_broken)
        found = taught.evaluate(files, broken=broken, progress=partial(progress, "reading images"))
    if files.passed:
        display.note(f"passed over: {passed_over_text(files.passed)}")
    say_broken(found.broken)
    totals, right = found.confusion.sum(1), found.confusion.diagonal()
    known = int(totals.sum())
    if json:
        record = {
            "accuracy": _number(found.accuracy),
            "accepted_accuracy": _number(found.accepted_accuracy),
            "known": {"images": known, "flagged": found.known_flagged},
            "unknown": {"images": found.unknown, "flagged": found.unknown_flagged},
            "classes": list(found.classes),
            "confusion": found.confusion.tolist(),
        }
        say_json(record)
        return
    width = max(map(len, found.classes))
    for label, hits, images in zip(found.classes, right, totals, strict=True):
        if images:
            say(f"{label:<{width}}  {100 * hits / images:6.2f}%  of {images} images")
    if known:
        say(f"accuracy {100 * found.accuracy:.2f}% on {known} images of known classes, flagged or not")
        say(
            f"flagged as unknown: {found.known_flagged} of {known} images of known classes; accuracy "
            f"{100 * found.accepted_accuracy:.2f}% if these count as wrong"
        )
    if found.unknown:
        say(f"flagged as unknown: {found.unknown_flagged} of {found.unknown} images of classes never taught")


def suggest(
    model: Model,
    images: NamedImages,
    count: Annotated[int, typer.Option(min=1, help="How many to suggest.")] = 20,
    json: Annotated[bool, flag("--json", "Print one JSON list.")] = False,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Pick the unlabelled images that would teach the model most: typical examples of what it is unsure of.

    The most useful comes first. Sort these into class folders and `dsal learn` them. Images that were learned before
    are left out.
    """
    paths = named_images(images)

    from dsal.cli.display import Display

    taught = load_predictor(model, device)
    with Display().preparation() as progress:
        broken = broken_option(skip_broken)
        answers = taught.suggest(paths, count, broken=broken, progress=partial(progress, "reading images"))
    say_broken(answers.broken)
    if json:
        say_json([_record(answer) for answer in answers])
        return
    for answer in answers:
        say(_line(answer))
