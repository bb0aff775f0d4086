"""Hugging Face hub: push models with a generated card, and load them by name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from dsal.base import __version__
from dsal.classifier import DSALClassifier
from dsal.image_model import ImageModel
from dsal.integrations.folders import FILES, read_model, write_model
from dsal.integrations.needs import needs

_MOST_CLASSES = 200  # in the table of a card


def save_pretrained(
    model: ImageModel | DSALClassifier, folder: str | Path, *, name: str = "model", licence: str = "apache-2.0",
    learning: bool = True,
) -> Path:  # fmt: skip
    """Write a model and its card (``README.md``) to a folder, as the hub stores it.

    Args:
        model: fitted.
        folder: created if missing.
        name: its name on the hub, for the card.
        licence: its licence, by the hub's identifiers.
        learning: whether to include what further learning needs.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_model(model, path, learning)
    (path / "README.md").write_text(model_card(model, name, licence), encoding="utf-8")
    return path


def push_to_hub(
    model: ImageModel | DSALClassifier, name: str, *, licence: str = "apache-2.0", learning: bool = True,
    private: bool = True, token: str | None = None,
) -> str:  # fmt: skip
    """Upload a model to the hub, private unless asked otherwise, and return the address of the commit.

    A model of few images per class reveals much about them: see SECURITY.md before you publish one.
    """
    api = needs("huggingface_hub", "hub").HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder, name=name, licence=licence, learning=learning)
        api.create_repo(name, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=name, folder_path=folder, commit_message=f"dsal {__version__}"))


def from_pretrained(
    name: str | Path, *, revision: str | None = None, token: str | None = None, cache_dir: str | Path | None = None
) -> ImageModel | DSALClassifier:
    """Load a model by its name on the hub, or from a folder that :func:`save_pretrained` wrote."""
    if Path(name).is_dir():
        return read_model(Path(name))
    fetch = needs("huggingface_hub", "hub").snapshot_download
    patterns = [*FILES, "README.md"]
    folder = fetch(str(name), revision=revision, token=token, cache_dir=cache_dir, allow_patterns=patterns)
    return read_model(Path(folder))


def model_card(model: ImageModel | DSALClassifier, name: str, licence: str) -> str:
    """Return the card of a model: YAML for the hub, then what it is and how to use it."""
    images = isinstance(model, ImageModel)
    counts = _counts(model)
    head = {
        "library_name": "dsal",
        "license": licence,
        "pipeline_tag": "image-classification" if images else "tabular-classification",
        "tags": ["dsal", "continual-learning", "class-incremental-learning"],
    }
    yaml = "".join(f"{key}: {_yaml(value)}\n" for key, value in head.items())
    shown = list(counts.items())[:_MOST_CLASSES]
    table = "".join(f"| {_cell(label)} | {number:g} |\n" for label, number in shown)
    rest = f"\nand {len(counts) - len(shown)} more.\n" if len(counts) > len(shown) else ""
    usage = "model.predict(['photo.jpg'])" if images else "model.predict(X)"
    learn = "model.learn('more/')  # folders of new classes" if images else "model.partial_fit(X_new, y_new)"
    facts = "".join(f"- {key}: {value}\n" for key, value in _facts(model).items())
    return (
        f"---\n{yaml}---\n# {name}\n\nA classifier that learns new classes in closed form, "
        f"keeps no data and forgets none; made with dsal {__version__}.\n\n{facts}\n"
        f"## Use\n\n```python\n# pip install dsal-learn\n"
        f"from dsal.integrations.hub import from_pretrained\n\nmodel = from_pretrained({name!r})\n"
        f"{usage}\n{learn}\n```\n\n"
        f"## Classes\n\n| class | {'images' if images else 'rows'} |\n|---|---|\n{table}{rest}"
    )


def _counts(model: ImageModel | DSALClassifier) -> dict[Any, float]:
    if isinstance(model, ImageModel):
        return dict(model.counts)
    return dict(zip(model.classes_.tolist(), model._class_weight.tolist(), strict=True))


def _facts(model: ImageModel | DSALClassifier) -> dict[str, Any]:
    classifier = model.classifier if isinstance(model, ImageModel) else model
    facts: dict[str, Any] = {
        "classes": len(classifier.classes_),
        "phases": classifier.n_phases_,
        "d_B, gamma, C": f"{classifier.expansion_size}, {classifier.gamma_:g}, {classifier.compensation_:g}",
    }
    if isinstance(model, ImageModel):
        card = model.backbone.card
        facts |= {"backbone": card.architecture, "image size": f"{card.size} x {card.size}"}
        total = sum(sum(taken.values()) for taken in model.left_out.values())
        right = sum(taken.get(label, 0) for label, taken in model.left_out.items())
        if total:
            facts["leave-one-out accuracy"] = f"{right / total:.1%} of {total} images"
    return facts


def _yaml(value: Any) -> str:
    return "\n" + "\n".join(f"- {item}" for item in value) if isinstance(value, list) else str(value)


def _cell(label: Any) -> str:
    """Return a label that cannot break the table."""
    return str(label).replace("|", "\\|").replace("\n", " ")
