"""Save and load an image model as one safetensors file: backbone, classifier and novelty statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dsal.backbones import graphs
from dsal.backbones.backbone import Backbone, Card, channels_last, read_card
from dsal.backbones.hub import MODULE, empty_backbone, wrap_module
from dsal.base import __version__
from dsal.classifier import DSALClassifier, classifier_files
from dsal.distributed import Team
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import StrPath
from dsal.files.model_schema import IMAGE_MODEL
from dsal.files.tensors import load_tensors, save_tensors
from dsal.image_model.version import Version, equal, part, set_arrays, state_arrays

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
    own = {**arrays, **state_arrays(model._learned)}
    versions = {"history": model.history, "undone": model.undone} if learning else {"history": (), "undone": ()}
    documents: dict[str, list[dict[str, Any]]] = {"history": [], "undone": []}
    for kind, some in versions.items():
        newer: Mapping[str, NDArray[Any] | Tensor] = own
        names = {name: name for name in own}
        for number, version in enumerate(some):
            same: dict[str, str] = {}
            for name, value in version.arrays.items():
                if name in newer and _equal(newer[name], value):
                    same[name] = names[name]
                else:
                    arrays[f"{kind}.{number}.{name}"] = value
            documents[kind].append({**version.document(), "same": same})
            newer = version.arrays
            names = {name: same.get(name, f"{kind}.{number}.{name}") for name in version.arrays}
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
        "version_id": model.version_id,
        **documents,
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
        model.version_id = meta["version_id"]
        model.history, model.undone = (_versions(arrays, meta[kind], kind) for kind in ("history", "undone"))
        model.version = meta["dsal"]
    except (LookupError, TypeError, RuntimeError) as error:
        raise FileFormatError(f"{path} is not a model that this version of dsal can read: {error!r}") from error
    return model


def _versions(arrays: dict[str, NDArray[Any]], documents: list[dict[str, Any]], kind: str) -> tuple[Version, ...]:
    """Return the versions of one kind; arrays that did not change between two versions are in the file once."""
    found = []
    for number, document in enumerate(documents):
        about = dict(document)
        same = {name: arrays[stored] for name, stored in about.pop("same").items()}
        found.append(Version(arrays={**part(arrays, f"{kind}.{number}"), **same}, **about))
    return tuple(found)


def _equal(one: NDArray[Any] | Tensor, other: NDArray[Any]) -> bool:
    return equal(one if isinstance(one, np.ndarray) else one.detach().cpu().numpy(), other)


def _stored_backbone(card: Card, arrays: dict[str, NDArray[Any]]) -> Backbone:
    if card.architecture == graphs.NAME:
        return Backbone(card, graphs.OnnxNetwork(torch.from_numpy(arrays["network.graph"])))
    backbone = empty_backbone(card)
    backbone.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    return channels_last(backbone).eval()
