"""Convert a classifier to named arrays and JSON metadata and back, with or without what further learning needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.activations import name_of
from dsal.classifier.calibration import GRID, Calibration
from dsal.classifier.inputs import kind_of, label_array
from dsal.errors import DSALError, FileFormatError, InputError
from dsal.files.atomic import StrPath

if TYPE_CHECKING:
    from dsal.classifier.estimator import DSALClassifier

KIND = "classifier"
_LABEL_KINDS = ("bool", "int", "float", "str")  # what JSON can hold


def pack(model: DSALClassifier, learning: bool) -> tuple[dict[str, NDArray[Any] | Tensor], dict[str, Any]]:
    """Return a fitted model as named arrays and JSON metadata."""
    learner, classes = model._learner, model._classes
    if kind_of(classes) not in _LABEL_KINDS:
        raise InputError(f"labels of type {type(classes[0]).__name__} cannot be saved: use numbers or strings")
    arrays: dict[str, NDArray[Any] | Tensor] = {"calibration": model._calibration.losses}
    arrays |= learner.state(learning=False)
    if learning:
        arrays |= {"class_weight": model._class_weight, **learner.state()}
    params = {name: _plain(value) for name, value in model.get_params(deep=False).items() if name != "device"}
    for name in ("activation", "main_activation"):
        params[name] = name_of(params[name])
    if not isinstance(params["random_state"], int):
        params["random_state"] = learner.seed
    meta = {
        "kind": KIND,
        "params": params,
        "seed": learner.seed,
        "classes": classes.tolist(),
        "features": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
        **learner.facts(),
        "gammas": [model.gamma_, model.gamma_comp_],
        "learning": learning,
    }
    return arrays, meta


def unpack(
    model: DSALClassifier,
    arrays: dict[str, NDArray[Any]],
    meta: dict[str, Any],
    path: StrPath,
    device: str | torch.device,
) -> None:
    """Fill a new model with what :func:`pack` returned; ``path`` is for error messages."""
    try:
        model.set_params(**meta["params"], device=device)
        model.n_features_in_ = meta["features"]
        if meta["feature_names"]:
            model.feature_names_in_ = np.array(meta["feature_names"], dtype=object)
        _restore(model, arrays, meta)
    except DSALError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path} does not describe a classifier of this version of dsal: {error!r}") from error


def _restore(model: DSALClassifier, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
    learner = model._fresh(meta["seed"], compensated="comp.weights" in arrays)
    learner.restore(arrays, meta, meta["learning"])
    model._classes = label_array(meta["classes"])
    model._class_weight = arrays.get("class_weight", np.zeros(len(meta["classes"])))
    if arrays["calibration"].shape != GRID.shape:
        raise ValueError(f"calibration has shape {arrays['calibration'].shape}, not {GRID.shape}")
    model._calibration = Calibration(arrays["calibration"])
    model._fixed, model._learner = model._settings(), learner


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
