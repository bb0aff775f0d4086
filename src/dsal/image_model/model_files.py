"""Save and load an image model as one safetensors file: backbone, classifier and novelty statistics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsal.backbones import graphs
from dsal.backbones.backbone import Backbone, Card, channels_last, read_card
from dsal.backbones.hub import MODULE, empty_backbone, wrap_module
from dsal.base.version import __version__
from dsal.classifier import DSALClassifier, classifier_files
from dsal.distributed import Team
from dsal.errors import FileFormatError, InputError
from dsal.files.model_schema import IMAGE_MODEL
from dsal.files.store import StrPath, load_tensors, save_tensors
from dsal.image_model.version import Version, part, set_arrays, state_arrays

if TYPE_CHECKING:
    from dsal.image_model.model import ImageModel

KIND = "image model"


def save(model: ImageModel, path: StrPath, learning: bool) -> None:
    """Write a model to a file. Of a user's own ``nn.Module`` only the fingerprint is saved, not the weights."""
    parts, meta = classifier_files.pack(model.classifier, learning)
    arrays: dict[str, NDArray[Any] | Tensor] = {f"classifier.{name}": value for name, value in parts.items()}
    card = model.backbone.card
    if card.architecture != MODULE:
        state = model.backbone.state_dict()
        arrays |= {f"backbone.{name}": value for name, value in state.items() if not name.startswith("head.")}
    arrays |= state_arrays(model._learned)
    history = model.history if learning else ()
    for number, version in enumerate(history):
        arrays |= {f"history.{number}.{name}": value for name, value in version.arrays.items()}
    document = {
        "kind": KIND,
        "card": asdict(card),
        "backbone_sha256": model.backbone.fingerprint(),
        "classifier": meta,
        "counts": model.counts,
        "temperature": model.classifier._calibration.temperature,
        "compensation": model.classifier.compensation_,
        "left_out": model.left_out,
        "notes": model.notes,
        "history": [version.document() for version in history],
        "dsal": __version__,
    }
    save_tensors(path, arrays, document)


def load(path: StrPath, backbone: Backbone | nn.Module | None, device: str | torch.device, team: Team) -> ImageModel:
    """Read a model that :func:`save` wrote; ``backbone``, if given, must be the one it was made with."""
    from dsal.image_model.model import ImageModel

    arrays, meta = load_tensors(path, IMAGE_MODEL)
    try:
        card = read_card(meta["card"])
        if backbone is None:
            backbone = _stored_backbone(card, part(arrays, "backbone"))
        elif not isinstance(backbone, Backbone):
            backbone = wrap_module(backbone, size=card.size, in_channels=card.in_channels, mean=card.mean, std=card.std)
        if backbone.fingerprint() != meta["backbone_sha256"]:
            raise InputError(
                f"{path} was made with another backbone ({card.architecture}) and cannot be used with this one"
            )
        classifier = DSALClassifier()
        classifier.team = team
        classifier_files.unpack(classifier, part(arrays, "classifier"), meta["classifier"], path, "auto")
        model = ImageModel(backbone, classifier, device, team=team)
        set_arrays(model._learned, arrays)
        model._learned.left_out, model.notes = meta["left_out"], meta["notes"]
        model.history = tuple(
            Version(arrays=part(arrays, f"history.{number}"), **document)
            for number, document in enumerate(meta["history"])
        )
        model.version = meta["dsal"]
    except (LookupError, TypeError, RuntimeError) as error:
        raise FileFormatError(f"{path} is not a model that this version of dsal can read: {error!r}") from error
    return model


def _stored_backbone(card: Card, arrays: dict[str, NDArray[Any]]) -> Backbone:
    if card.architecture == graphs.NAME:
        return Backbone(card, graphs.OnnxNetwork(torch.from_numpy(arrays["network.graph"])))
    backbone = empty_backbone(card)
    backbone.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    return channels_last(backbone).eval()
