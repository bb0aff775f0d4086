"""``dsal predict``: labels of images."""

from __future__ import annotations

import csv
import json as json_
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsal.cli.image_model import (
    Device,
    Model,
    NamedImages,
    SkipBroken,
    broken_option,
    load_predictor,
    named_images,
    say_broken,
)
from dsal.cli.say import say
from dsal.errors import InputError

if TYPE_CHECKING:
    from dsal.image_model.outcomes import Prediction


def predict(
    model: Model,
    images: NamedImages,
    top_k: Annotated[int, typer.Option(help="How many of the most likely classes to print.")] = 5,
    threshold: Annotated[float, typer.Option(help="Report an image as unknown if its novelty is above this.")] = 0.95,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list at the end.")] = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Print one JSON object per line, as soon as ready.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one CSV line per image, as soon as ready.")] = False,
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
        say(json_.dumps([record_of(answer) for answer in answers], indent=2, ensure_ascii=False))
    elif as_csv:
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(["path", "label", "score", "novelty", "novel"])
        for answer in answers:
            table.writerow([answer.path, answer.label, answer.score, answer.novelty, int(answer.novel)])
            sys.stdout.flush()
    else:
        for answer in answers:
            say(json_.dumps(record_of(answer), ensure_ascii=False) if json_lines else line_of(answer))
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


def record_of(answer: Prediction) -> dict[str, Any]:
    """Return an answer as a JSON object: see docs/own-images.md."""
    return {
        "path": str(answer.path),
        "label": answer.label,
        "score": answer.score,
        "top_k": [{"label": label, "score": score} for label, score in answer.top_k],
        "novelty": None if math.isnan(answer.novelty) else answer.novelty,
        "novel": answer.novel,
    }


def line_of(answer: Prediction) -> str:
    """Format an answer as one line for people."""
    ranked = "  ".join(f"{label} {score:.2f}" for label, score in answer.top_k)
    unknown = "unknown; nearest: " if answer.novel else ""
    return f"{answer.path}: {unknown}{ranked}  (novelty {answer.novelty:.2f})"
