"""Names that users choose: of models, which become file names, and of classes, which are text."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path

from dsal.errors import InputError
from dsal.image_model.sources import check_class_name

SUFFIX = ".dsal"
MOST_CHARACTERS = 64
_MOST_BYTES = 255 - 2 * len(SUFFIX)  # of file names, on most systems
_RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(1, 10))}


@lru_cache(maxsize=256)
def model_path(folder: Path, name: str) -> Path:
    """Return the path of a model file; raise InputError for a name that could mean anything but a file in this folder.

    >>> model_path(Path("models"), "My cups").name
    'My cups.dsal'
    >>> model_path(Path("models"), "قطط").name == "قطط.dsal"
    True
    >>> model_path(Path("models"), "../secret")
    Traceback (most recent call last):
        ...
    dsal.errors.InputError: a model's name may have letters, digits, spaces, '-', '_' and '.', must start with a \
letter or digit, and must not end with a space or '.'; got '../secret'
    """
    name = unicodedata.normalize("NFC", name)
    if name.split(".")[0].rstrip().upper() in _RESERVED:
        raise InputError(f"{name[:80]!r} cannot be a model's name: on Windows it is the name of a device")
    if len(name) > MOST_CHARACTERS or len(name.encode(errors="replace")) > _MOST_BYTES:
        raise InputError(
            f"a model's name must have at most {MOST_CHARACTERS} characters and {_MOST_BYTES} bytes in UTF-8, got "
            f"{len(name)} characters and {len(name.encode(errors='replace'))} bytes"
        )
    if not _is_spelled(name):
        raise InputError(
            "a model's name may have letters, digits, spaces, '-', '_' and '.', must start with a letter or digit, and "
            f"must not end with a space or '.'; got {name[:80]!r}"
        )
    return folder / f"{name}{SUFFIX}"


def model_names(folder: Path) -> list[str]:
    """Return the names of the models in a folder, sorted; files with invalid names are ignored."""
    names = [path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}") if path.is_file()]
    return sorted((name for name in names if _is_valid(folder, name)), key=str.lower)


def _is_valid(folder: Path, name: str) -> bool:
    try:
        return model_path(folder, name).name == f"{name}{SUFFIX}"
    except InputError:
        return False


def _is_spelled(name: str) -> bool:
    """Return whether all characters are letters (with their marks) and digits of any script, or one of " ._-"."""
    if not unicodedata.is_normalized("NFKC", name):
        return False  # such as full-width letters: no two names should look the same
    kinds = ["" if character in " ._-" else unicodedata.category(character)[0] for character in name]
    return bool(name) and kinds[0] in ("L", "N") and name[-1] not in " ." and set(kinds) <= {"", "L", "M", "N"}


def class_label(text: object) -> str:
    """Return a class name as it is stored: one line of text, without spaces at its ends.

    >>> class_label("  Grandma's cup "), class_label("<b>")
    ("Grandma's cup", '<b>')
    """
    if not isinstance(text, str):
        raise InputError(f"a class name must be text, got {type(text).__name__}")
    label = unicodedata.normalize("NFC", text.strip())
    if not 1 <= len(label) <= MOST_CHARACTERS:
        raise InputError(f"a class name must have 1 to {MOST_CHARACTERS} characters, got {len(label)}")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in label):
        raise InputError("a class name must be one line of text, without control characters")
    return check_class_name(label)
