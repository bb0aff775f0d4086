"""Version tags of models: a change is refused if the model is no longer the version that the client has seen."""

from __future__ import annotations

from pathlib import Path

from dsal.files.atomic import file_stamp
from dsal.image_model import ImageModel
from dsal.serve.http_errors import Refusal


def version_tag(path: Path) -> str | None:
    """Return a text that changes whenever the model file is written, by whomever; None if there is no file."""
    stamp = file_stamp(path)
    return None if stamp is None else "-".join(f"{number:x}" for number in stamp)


def check_version(path: Path, model: ImageModel, expected: str | None) -> None:
    """Raise :class:`Refusal` 412 if the file is not the version a client expects; call it with the lock held.

    Args:
        path: the model file.
        model: the model as it is in the file; its history says what happened last.
        expected: the header ``If-Match``: a tag in quotes, ``*``, or None for any version.
    """
    if expected is None or expected.strip() == "*" or expected.strip().strip('"') == version_tag(path):
        return
    last = f" (last change: {model.history[0].change})" if model.history else ""
    raise Refusal(412, f"the model has changed since you last looked{last}: nothing was done. Look again, then decide.")
