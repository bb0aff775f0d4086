"""Arguments and helpers shared by the commands on image models."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsal.cli.arguments import flag, option
from dsal.cli.say import say
from dsal.errors import InputError

if TYPE_CHECKING:
    from dsal.base.progress import OnProgress
    from dsal.distributed import Team
    from dsal.image_model import ImageModel
    from dsal.image_model.image_predictor import ImagePredictor
    from dsal.image_model.stored_model import StoredModel

_MOST_NAMED = 10

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by `dsal learn`.")]
Source = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="FOLDER/<class>/*, a zip of it, or a CSV of path,label.")
]
NamedImages = Annotated[
    list[str],
    typer.Argument(metavar="IMAGES...", help="Files, folders, quoted patterns ('*.jpg'), or - for names on stdin."),
]
Wait = Annotated[
    float | None,
    option("Wait up to this long if another command is writing the model.", "refuse at once", metavar="SECONDS"),
]
SkipBroken = Annotated[bool, flag("--skip-broken", "Skip files that cannot be read, instead of stopping.")]
KeepCompensation = Annotated[
    bool, flag("--keep-compensation", "Keep using the compensation stream, which keeps the wrong labels.")
]


def load_model(path: Path, device: str = "cpu", team: Team | None = None) -> ImageModel:
    """Read a model file; its backbone runs on ``device``, and the ranks of ``team`` learn together."""
    from dsal.distributed import ALONE
    from dsal.image_model import ImageModel
    from dsal.training import choose_device

    return ImageModel.load(path, device=choose_device(device), team=team or ALONE)


def load_predictor(path: Path, device: str = "cpu", team: Team | None = None) -> ImagePredictor:
    """Read what predictions need from a model file; without PyTorch, if a converted backbone is at hand."""
    from dsal.image_model.image_predictor import ImagePredictor

    light = ImagePredictor.load(path) if _on_cpu(device) and team is None else None
    return load_model(path, device, team).predictor() if light is None else light


def _on_cpu(device: str) -> bool:
    """Return whether the device is, or may be, the CPU; to know it, PyTorch would be needed."""
    return device == "cpu" or (device == "auto" and not Path("/proc/driver/nvidia").exists())


@contextmanager
def correcting(path: Path, wait: float | None) -> Iterator[StoredModel]:
    """Yield the content of a model file, as :func:`changing` does; without PyTorch, for changes that need no images."""
    from dsal.files.model_schema import IMAGE_MODEL
    from dsal.files.tensors import open_tensors
    from dsal.image_model.stored_model import StoredModel

    with _writing(path, wait), open_tensors(path, IMAGE_MODEL) as opened:
        stored = StoredModel.of({**opened.arrays}, opened.facts)
        yield stored
        stored.write(path)


@contextmanager
def changing(path: Path, wait: float | None, device: str = "cpu") -> Iterator[ImageModel]:
    """Yield a model to change and save it at the end of the block; no other process can write it meanwhile."""
    with _writing(path, wait):
        taught = load_model(path, device)
        yield taught
        taught.save(path)


@contextmanager
def _writing(path: Path, wait: float | None) -> Iterator[None]:
    """Check that a file can be changed, and lock it."""
    from dsal.files.atomic import check_writable
    from dsal.files.lock import model_lock

    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    check_writable(path)
    with model_lock(path, wait):
        yield


def take_images(
    done: str, path: Path, wait: float | None, device: str, change: Callable[[ImageModel, OnProgress], int]
) -> None:
    """Change a model by images that it has learned, and print what was ``done``, such as "forgot"."""
    from dsal.cli.display import Display
    from dsal.image_model.sources import plural

    with changing(path, wait, device) as taught:
        before = taught.classifier.compensation_
        with Display().preparation() as progress:
            images = change(taught, partial(progress, "reading images"))
    say(f"{done} {plural(images, 'image')}; {say_knows(path, taught)}")
    if before and not taught.classifier.compensation_:
        say("the compensation stream cannot be corrected, so the model now predicts with the main stream alone")


def check_backbone(model: ImageModel, name: str, path: Path) -> None:
    """Raise :class:`InputError` if a backbone is not the one that the model was made with."""
    from dsal.backbones.pretrained import open_backbone

    if open_backbone(name).fingerprint() != model.backbone.fingerprint():
        raise InputError(
            f"{path} was made with the backbone {model.backbone.card.architecture} and cannot continue with "
            f"{name}: leave out --backbone, or create a new model"
        )


def say_knows(path: Path, model: ImageModel | StoredModel) -> str:
    """Describe in one line what a model knows."""
    return f"{path} knows {knowledge(model)}"


def knowledge(model: ImageModel | StoredModel) -> str:
    """Return how many classes a model knows from how many images."""
    from dsal.image_model.sources import plural

    return f"{plural(len(model.classes), 'class')} from {plural(sum(model.counts.values()), 'image')}"


def broken_option(skip: bool) -> str:
    """Turn ``--skip-broken`` into the option ``broken`` of the models."""
    return "skip" if skip else "stop"


def say_broken(broken: Sequence[str]) -> None:
    """Print the first of the skipped files, and how many there are."""
    from dsal.image_model.sources import plural

    for reason in broken[:_MOST_NAMED]:
        note(f"skipped: {reason}")
    if len(broken) > _MOST_NAMED:
        note(f"... and {len(broken) - _MOST_NAMED} more")
    if broken:
        note(f"skipped because they could not be read: {plural(len(broken), 'file')}")


def note(text: str) -> None:
    """Print one line to stderr."""
    say(text, err=True)


def named_images(names: Sequence[str]) -> tuple[Path, ...]:
    """Find image files by path, folder or quoted pattern; ``-`` means names on stdin, one per line."""
    from dsal.data.images.labelled_files import find_images, passed_over_text

    given: list[str] = []
    for name in names:
        given += [line for line in sys.stdin.read().splitlines() if line.strip()] if name == "-" else [name]
    found: list[Path] = []
    for name in given:
        is_pattern = has_magic(name) and not Path(name).exists()
        matches = sorted(glob(name, recursive=True)) if is_pattern else [name]  # noqa: PTH207 (absolute ones, too)
        if not matches:
            raise InputError(f"no file matches the pattern {name!r}")
        found += map(Path, matches)
    if not found:
        raise InputError("no image given")
    passed = Counter[str]()
    images = find_images(found, passed)
    if passed:
        note(f"passed over: {passed_over_text(passed)}")
    return images
