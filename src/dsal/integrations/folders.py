"""One model in a folder that another program keeps: its own file, under a name that says what it is."""

from __future__ import annotations

from pathlib import Path

from dsal.classifier import DSALClassifier
from dsal.errors import InputError
from dsal.image_model import ImageModel

FILES = {"image_model.dsal": ImageModel, "classifier.safetensors": DSALClassifier}


def write_model(model: DSALClassifier | ImageModel, folder: Path, learning: bool = True) -> None:
    """Write a fitted model; ``learning=False`` leaves out what further learning needs."""
    file = next((file for file, kind in FILES.items() if isinstance(model, kind)), None)
    if file is None:
        raise InputError(f"an ImageModel or a DSALClassifier can be saved, not {type(model).__name__}")
    model.save(folder / file, learning=learning)


def read_model(*folders: Path) -> DSALClassifier | ImageModel:
    """Return the model in the first folder that has one."""
    for folder in folders:
        for file, kind in FILES.items():
            if (folder / file).is_file():
                return kind.load(folder / file)  # type: ignore[attr-defined, no-any-return]
    raise InputError(f"{folders[0]} holds no model of dsal: expected {' or '.join(FILES)}")
