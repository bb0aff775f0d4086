"""Learn from rows that stay where they are: what a client sends, and how a server adds it up.

A client sends sums over its rows: the factor U with U^T U = G + gamma I, packed, and Q. The server adds them, so the
main stream equals that of pooled rows. The residues of the compensation stream depend on the main weights at the end of
each phase. If clients are phases, the server sends every client those weights, and the client returns the sums of its
residues: a second round, after which both streams equal those of one process that learned the clients one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsal.analytic.activations import apply
from dsal.analytic.learner import Learner
from dsal.analytic.packing import flat, pack
from dsal.analytic.ridge import Ridge
from dsal.analytic.streams import cleansed, one_hot, residue
from dsal.classifier import DSALClassifier, classifier_files
from dsal.classifier.labels import columns_of, label_array
from dsal.errors import FileFormatError, InputError
from dsal.files.model_schema import CLASSIFIER
from dsal.files.schema import Mismatch, check_arrays

_SENT = ("main.factor", "main.targets", "comp.factor", "comp.targets", "class_weight", "calibration")
_ROUNDED = ("factor", "targets")  # what float32 halves


@dataclass(frozen=True)
class Part:
    """What one client sends: sums over its rows, by name, and JSON facts; never a row."""

    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]

    @property
    def bytes(self) -> int:
        """Size of the arrays and facts."""
        return sum(array.nbytes for array in self.arrays.values()) + len(json.dumps(self.facts))


def request(model: DSALClassifier) -> dict[str, Any]:
    """Return the options of a model that is not fitted, as JSON: every client must use the same."""
    if model.expansion != "random":
        raise InputError(f"only expansion='random' can be agreed on without rows, not {model.expansion!r}")
    return {name: value for name, value in model.get_params(deep=False).items() if name != "device"}


def part_of(model: DSALClassifier, dtype: str = "float64") -> Part:
    """Return the sums of a fitted client, the factor and Q in float64, or in float32 at half the bytes."""
    arrays, meta = classifier_files.pack(model, learning=True)
    sent = {name: np.asarray(arrays[name]) for name in _SENT if name in arrays}
    kept = ("classes", "features", "feature_names", "phases", "gammas", "ratio", "seed")
    facts = {name: meta[name] for name in kept} | {"expansion": model._learner.built().fingerprint()}
    return Part(_rounded(sent, dtype), facts)


def model_of(part: Part, options: Mapping[str, Any]) -> DSALClassifier:
    """Return the model whose sums a client sent, checked like a file from a stranger."""
    model = DSALClassifier(**options)
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in part.arrays.items()}
    try:
        meta = {**part.facts, "params": dict(options), "learning": True}
        expected = meta.pop("expansion")
        CLASSIFIER.facts.check(meta, "what the client sent")
        learner = blank(model, meta["features"], compensated="comp.factor" in arrays)
        if learner.built().fingerprint() != expected:
            raise Mismatch("its expansion is another one: all clients need the same features and options")
        state = learner.built().state_dict()
        arrays |= {f"expansion.{name}": buffer.cpu().numpy() for name, buffer in state.items()}
        arrays["main.weights"] = arrays["main.targets"]  # placeholders, solved for below
        if "comp.factor" in arrays:
            arrays["comp.weights"] = arrays["comp.targets"]
        check_arrays(arrays, CLASSIFIER.expected(meta), CLASSIFIER.sizes(meta))
    except (Mismatch, KeyError, TypeError) as error:
        raise FileFormatError(f"what the client sent is not the state of such a model: {error}") from error
    classifier_files.unpack(model, arrays, meta, "what the client sent", model.device)
    for ridge in model._learner.ridges:
        ridge.carried = ridge.solved = None
    return model


def blank(model: DSALClassifier, features: int, compensated: bool) -> Learner:
    """Return a learner with the options of ``model`` whose expansion is built, and which has learned nothing."""
    learner = model._fresh(int(model.random_state), compensated)
    empty = torch.empty(0, features, dtype=torch.float64)
    learner.expansion = learner.kind.build(features, learner.size, learner.seed, empty).to(learner.backend.device)
    return learner


def residue_part(
    options: Mapping[str, Any], X: Any, y: Any, weights: NDArray[Any], classes: Sequence[Any], first: bool,
    dtype: str = "float64",
) -> Part:  # fmt: skip
    """Return the sums of a client's compensation stream, eqs. (13)-(18).

    Args:
        options: see :func:`request`.
        X, y: the rows of the client.
        weights: W_M (d_B x classes) at the end of this client's phase.
        classes: the labels of its columns.
        first: whether the client is the first phase, in which nothing is cleansed.
        dtype: of the factor and Q.
    """
    model = DSALClassifier(**options)
    x, labels = np.asarray(X, dtype=np.float64), label_array(y)
    learner = blank(model, x.shape[1], compensated=True)
    stream, backend = learner.compensations[0], learner.backend
    gamma = model.gamma if stream.gamma is None else stream.gamma
    if isinstance(gamma, str):
        raise InputError("clients that are phases need numbers for gamma and gamma_comp, not 'auto'")
    columns, every = columns_of(labels, label_array(list(classes))), torch.arange(len(classes), device=backend.device)
    kept = every if first or not stream.cleanse else torch.from_numpy(np.unique(columns)).to(backend.device)
    w = torch.from_numpy(np.array(weights, dtype=np.float64, order="F")).to(backend.device)
    ridge = Ridge(learner.size, float(gamma), backend)
    ridge.grow(len(classes))

    def blocks() -> Any:
        for start in range(0, len(x), learner.block_rows):
            z = learner.expand(torch.from_numpy(x[start : start + learner.block_rows]).to(backend.device))
            own = torch.from_numpy(columns[start : start + learner.block_rows]).to(backend.device)
            fitted = backend.product(apply(learner.main_activation, z), w)
            left_over = cleansed(residue(one_hot(own, every), fitted), kept)  # (13), (15)
            yield apply(stream.activation, z), left_over  # (14)

    ridge.update(blocks(), rows=len(x))
    return Part(_rounded(flat({"comp": pack(ridge)}), dtype), {"gamma": float(gamma)})


def with_residues(model: DSALClassifier, parts: Sequence[Part], options: Mapping[str, Any]) -> DSALClassifier:
    """Return a model whose main stream is that of ``model`` and whose compensation stream adds up the ``parts``."""
    total: Ridge | None = None
    backend, (arrays, meta) = model._learner.backend, classifier_files.pack(model, learning=True)
    size, classes = model._learner.size, len(model.classes_)
    for part in parts:
        ours = {name: np.asarray(array, dtype=np.float64) for name, array in part.arrays.items()}
        targets, factor = ours.get("comp.targets"), ours.get("comp.factor")
        if targets is None or factor is None or targets.ndim != 2 or targets.shape[1] != size or len(targets) > classes:
            raise FileFormatError(f"a client sent no compensation stream of {size} columns")
        if factor.shape != (size * (size + 1) // 2,) or not (np.isfinite(factor).all() and np.isfinite(targets).all()):
            raise FileFormatError(f"a client's compensation stream is no factor of {size} finite columns")
        ridge = Ridge(size, part.facts["gamma"], backend)
        ridge.square, ridge.targets, ridge.empty = backend.unpack(factor, size), torch.from_numpy(targets).T, False
        if total is None:
            total = ridge
        else:
            total.grow(max(0, ridge.classes - total.classes))
            total.merge(ridge, torch.arange(ridge.classes, device=backend.device))
    if total is None:
        raise InputError("there is no client's compensation stream to add up")
    total.grow(classes - total.classes)
    arrays |= flat({"comp": {**pack(total), "weights": total.weights().T.cpu().numpy()}})
    meta |= {"params": dict(options), "gammas": [meta["gammas"][0], total.gamma]}
    whole = DSALClassifier()
    classifier_files.unpack(whole, {k: np.asarray(a) for k, a in arrays.items()}, meta, "the sum", model.device)
    return whole


def _rounded(arrays: Mapping[str, NDArray[Any]], dtype: str) -> dict[str, NDArray[Any]]:
    if dtype not in ("float64", "float32"):
        raise InputError(f"dtype must be 'float64' or 'float32', not {dtype!r}")
    short = {name for name in arrays if name.rpartition(".")[2] in _ROUNDED}
    return {name: array.astype(dtype) if name in short else array for name, array in arrays.items()}
