"""A classifier as one safetensors file: what predicting needs, and, unless left out, what learning on needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.activations import name_of
from dsal.classifier.calibration import GRID, Calibration
from dsal.classifier.labels import kind_of, label_array
from dsal.classifier.learned import Learned
from dsal.classifier.options import Options, positive
from dsal.errors import DSALError, FileFormatError, InputError
from dsal.store import StrPath, load_tensors, save_tensors
from dsal.tuning import RatioFit

if TYPE_CHECKING:
    from dsal.classifier.estimator import DSALClassifier

KIND = "classifier"
_LABEL_KINDS = ("bool", "int", "float", "str")  # what JSON can hold


def save(model: DSALClassifier, path: StrPath, learning: bool) -> None:
    """Write a fitted model; ``learning=False`` leaves out what learning on needs."""
    save_tensors(path, *pack(model, learning))


def pack(model: DSALClassifier, learning: bool) -> tuple[dict[str, NDArray[Any] | Tensor], dict[str, Any]]:
    """A fitted model as named arrays and metadata for JSON."""
    learned = model._learned
    if kind_of(learned.classes) not in _LABEL_KINDS:
        raise InputError(f"labels of type {type(learned.classes[0]).__name__} cannot be saved: use numbers or strings")
    arrays: dict[str, NDArray[Any] | Tensor] = {
        "calibration": learned.calibration.losses,
        "main.weights": learned.main.T,
    }
    if learned.comp is not None:
        arrays["comp.weights"] = learned.comp.T
    arrays |= {f"expansion.{name}": buffer for name, buffer in learned.expansion.state_dict().items()}
    if learning:
        arrays |= {"class_weight": learned.class_weight, **learned.learner.state()}
    params = {name: _plain(value) for name, value in model.get_params(deep=False).items() if name != "device"}
    for name in ("activation", "main_activation"):
        params[name] = name_of(params[name])
    if not isinstance(params["random_state"], int):
        params["random_state"] = learned.seed
    meta = {
        "kind": KIND,
        "params": params,
        "seed": learned.seed,
        "classes": learned.classes.tolist(),
        "features": model.n_features_in_,
        "feature_names": getattr(model, "feature_names_in_", np.empty(0)).tolist(),
        "phases": learned.phases,
        "gammas": list(learned.gammas),
        "ratio": [learned.ratio.explained, learned.ratio.energy],
        "learning": learning,
    }
    return arrays, meta


def load(model: DSALClassifier, path: StrPath, device: str | torch.device) -> None:
    """Make a new model what :func:`save` wrote."""
    arrays, meta = load_tensors(path, kind=KIND)
    unpack(model, arrays, meta, path, device)


def unpack(
    model: DSALClassifier,
    arrays: dict[str, NDArray[Any]],
    meta: dict[str, Any],
    path: StrPath,
    device: str | torch.device,
) -> None:
    """Make a new model what :func:`pack` returned; ``path`` is for error messages."""
    try:
        model.set_params(**meta["params"], device=device)
        model.n_features_in_ = meta["features"]
        if meta["feature_names"]:
            model.feature_names_in_ = np.array(meta["feature_names"], dtype=object)
        model._learned = _learned(model, arrays, meta)
    except DSALError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"{path} does not describe a classifier of this version of dsal: {error!r}") from error


def _learned(model: DSALClassifier, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Learned:
    options = Options.of(model)
    _check_shapes(arrays, classes=len(meta["classes"]), features=meta["features"], d=options.size)

    def tensor(name: str) -> Tensor:
        return torch.from_numpy(arrays[name]).to(options.backend.device)

    prefix = "expansion."
    expansion = options.expansion(**{name.removeprefix(prefix): tensor(name) for name in arrays if prefix in name})
    weights = tensor("main.weights").T, tensor("comp.weights").T if "comp.weights" in arrays else None
    gammas = positive("gamma", meta["gammas"][0]), positive("gamma_comp", meta["gammas"][1])
    streams = None
    if meta["learning"]:
        streams = options.streams(expansion, gammas, compensated=weights[1] is not None)
        streams.restore(arrays)
    return Learned(
        settings=model._settings(),
        seed=meta["seed"],
        backend=options.backend,
        expansion=expansion,
        classes=label_array(meta["classes"]),
        class_weight=arrays.get("class_weight", np.zeros(len(meta["classes"]))),
        phases=meta["phases"],
        calibration=Calibration(arrays["calibration"]),
        gammas=gammas,
        ratio=RatioFit(*meta["ratio"]),
        streams=streams,
        frozen=weights if streams is None else None,
    )


def _check_shapes(arrays: dict[str, NDArray[Any]], classes: int, features: int, d: int) -> None:
    """Shapes that do not fit would crash later, in LAPACK."""
    stream = {"weights": (classes, d), "targets": (classes, d), "factor": (d * (d + 1) // 2,)}
    expected: dict[str, tuple[int, ...]] = {
        "calibration": GRID.shape,
        "class_weight": (classes,),
        "expansion.projection": (features, d),
        **{f"{name}.{part}": shape for name in ("main", "comp") for part, shape in stream.items()},
    }
    for name, array in arrays.items():
        if array.shape != expected.get(name, array.shape):
            raise ValueError(f"{name} has shape {array.shape}, not {expected[name]}")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
