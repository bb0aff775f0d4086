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

from dsal.cli.image_model import Device, Model, SkipBroken, named_images, say_broken, way_with_broken
from dsal.errors import InputError

if TYPE_CHECKING:
    from dsal.images.answers import Prediction


def predict(
    model: Model,
    images: Annotated[
        list[str],
        typer.Argument(metavar="IMAGES...", help="Files, folders, quoted patterns ('*.jpg'), or - for names on stdin."),
    ],
    top_k: Annotated[int, typer.Option(help="How many of the most likely classes to give.")] = 5,
    threshold: Annotated[float, typer.Option(help="Novelty above which an image counts as unknown.")] = 0.95,
    json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout, at the end.")] = False,
    json_lines: Annotated[bool, typer.Option("--json-lines", help="One JSON object a line, as they are made.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One line for each image, as they are made.")] = False,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Name images, or say that they look like nothing that was taught.

    Novelty is the fraction of the images learned that look less strange than this one.
    """
    if json + json_lines + as_csv > 1:
        raise InputError("choose one of --json, --json-lines and --csv")
    paths = named_images(images)
    from dsal.images.answering import check_question

    check_question(top_k, threshold)
    skipped: list[str] = []
    question = {"top_k": top_k, "threshold": threshold, "broken": way_with_broken(skip_broken)}
    answers = _answers(model, paths, device, skipped, question)
    if json:
        typer.echo(json_.dumps([_record(answer) for answer in answers], indent=2, ensure_ascii=False))
    elif as_csv:
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(["path", "label", "score", "novelty", "novel"])
        for answer in answers:
            table.writerow([answer.path, answer.label, answer.score, answer.novelty, int(answer.novel)])
            sys.stdout.flush()
    else:
        for answer in answers:
            typer.echo(json_.dumps(_record(answer), ensure_ascii=False) if json_lines else _line(answer))
    say_broken(skipped)


def _answers(
    model: Path, paths: tuple[Path, ...], device: str, skipped: list[str], question: dict[str, Any]
) -> Iterator[Prediction]:
    """Answers as they are made; what could not be read goes to ``skipped``."""
    from dsal.images.reader import ImageReader

    taught = ImageReader.load(model) if _on_cpu(device) else None
    if taught is None:
        from dsal.cli.image_model import load_model

        taught = load_model(model, device)  # type: ignore[assignment]
    for answer in taught.predictions(paths, **question):  # type: ignore[union-attr]
        if isinstance(answer, str):
            skipped.append(answer)
        else:
            yield answer


def _on_cpu(device: str) -> bool:
    """Whether the device is the CPU, or may be: PyTorch, which knows, is what a reader does without."""
    return device == "cpu" or (device == "auto" and not Path("/proc/driver/nvidia").exists())


def _record(answer: Prediction) -> dict[str, Any]:
    return {
        "path": str(answer.path),
        "label": answer.label,
        "score": answer.score,
        "top_k": [{"label": label, "score": score} for label, score in answer.top_k],
        "novelty": None if math.isnan(answer.novelty) else answer.novelty,
        "novel": answer.novel,
    }


def _line(answer: Prediction) -> str:
    ranked = "  ".join(f"{label} {score:.2f}" for label, score in answer.top_k)
    unknown = "unknown; nearest: " if answer.novel else ""
    return f"{answer.path}: {unknown}{ranked}  (novelty {answer.novelty:.2f})"
