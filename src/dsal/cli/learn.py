"""``dsal learn``: teach a model a folder of images."""

from __future__ import annotations

import math
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dsal.cli.arguments import Device, flag, option
from dsal.cli.image_model import (
    SkipBroken,
    Source,
    Wait,
    broken_option,
    check_backbone,
    knowledge,
    load_model,
    say_broken,
)
from dsal.cli.say import say
from dsal.errors import InputError

if TYPE_CHECKING:
    from dsal.image_model import Lesson


def learn(
    source: Source,
    model: Annotated[Path, option("The model file; created if it does not exist.")],
    backbone: Annotated[
        str | None,
        option(
            "Name of a pretrained backbone (docs/backbones.md), a file of weights, or FILE.onnx.",
            "the model's; efficientnet-lite0 for a new one",
        ),
    ] = None,
    expansion_size: Annotated[
        int | None, option("d_B of a new model: larger is more accurate; memory grows quadratically.", "4096")
    ] = None,
    gamma: Annotated[str | None, option("Ridge penalty of a new model: a number, or auto.", "100")] = None,
    seed: Annotated[int | None, option("Seed of the random expansion of a new model.", "0")] = None,
    again: Annotated[bool, flag("--again", "Learn known images a second time; they count twice.")] = False,
    wait: Wait = None,
    skip_broken: SkipBroken = False,
    device: Device = "auto",
) -> None:
    """Learn new classes, or more images of known classes, in one phase. No image is kept.

    Images that were learned before are recognised by their content and skipped, so you can learn a growing folder
    again and again. The model file is replaced in one step at the end; if anything goes wrong, it is unchanged.
    """
    from dsal.data.images.labelled_files import passed_over_text, read_files
    from dsal.files.atomic import check_writable
    from dsal.files.lock import model_lock

    check_writable(model)
    files = read_files(source)
    own: dict[str, Any] = {"expansion_size": expansion_size, "gamma": _gamma(gamma), "seed": seed}
    given = {name: value for name, value in own.items() if value is not None}

    from dsal.backbones.pretrained import DEFAULT
    from dsal.cli.display import Display
    from dsal.cli.processes import current_team
    from dsal.image_model import ImageModel
    from dsal.image_model.sources import plural
    from dsal.training import choose_device

    display, team = Display(), current_team()
    with ExitStack() as stack:
        if team.leads:
            stack.enter_context(model_lock(model, wait))
        if team.broadcast_result(model.exists):
            taught = load_model(model, device, team)
            if given:
                raise InputError(
                    f"{model} exists already: expansion size, gamma and seed can only be set for a new model"
                )
            if backbone is not None:
                check_backbone(taught, backbone, model)
        else:
            taught = ImageModel(backbone or DEFAULT, device=choose_device(device), team=team, **given)
        with display.preparation() as progress:
            broken = broken_option(skip_broken)
            lesson = taught.learn(files, again=again, broken=broken, progress=partial(progress, "reading images"))
        if not team.leads:
            return
        if lesson.images:
            taught.save(model)
    if files.passed:
        display.note(f"passed over: {passed_over_text(files.passed)}")
    say_broken(lesson.broken)
    _say(lesson)
    say(f"learned {plural(lesson.images, 'image')}; {model} now knows {knowledge(taught)}")
    if not math.isnan(lesson.loo_accuracy):
        say(f"leave-one-out accuracy of the new images (main stream): {100 * lesson.loo_accuracy:.1f}%")
    elif lesson.images:
        say("no leave-one-out accuracy yet: it needs two classes, and a class with two images")


def _gamma(value: str | None) -> float | str | None:
    if value is None or value == "auto":
        return value
    try:
        return float(value)
    except ValueError as error:
        raise InputError(f"--gamma must be a positive number or auto, not {value!r}") from error


def _say(lesson: Lesson) -> None:
    from dsal.image_model.sources import plural

    if lesson.new_classes:
        say(f"new classes: {', '.join(lesson.new_classes)}")
    if lesson.known_classes:
        say(f"more images of: {', '.join(lesson.known_classes)}")
    if lesson.repeated:
        say(f"learned before and skipped: {plural(lesson.repeated, 'image')} (--again counts them twice)")
    if lesson.duplicates:
        say(f"copies in this lesson, which do not count: {plural(lesson.duplicates, 'image')}")
    for path, now, then in lesson.moved[:10]:
        say(f"{path} was learned as {then}, not {now}, and skipped")
    if lesson.moved:
        say(f"learned under another label: {plural(len(lesson.moved), 'image')}; dsal relabel corrects that")
