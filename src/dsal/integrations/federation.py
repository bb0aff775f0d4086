"""Learn from rows that stay where they are: what a client sends, and how a server adds it up.

A client sends sums over its rows: the factor U with U^T U = G + gamma I, packed, and Q. The server adds them, so the
main stream equals that of pooled rows. Instead of U a client can send r rows R with R^T R close to G, which are fewer
bytes if it has few rows; or G itself under masks, of which the server sees only the sum over clients.

The residues of the compensation stream depend on the main weights at the end of
each phase. If clients are phases, the server sends every client those weights, and the client returns the sums of its
residues: a second round, after which both streams equal those of one process that learned the clients one by one.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from dsal.analytic.learner import Learner
from dsal.analytic.ridge import Ridge
from dsal.analytic.ridge_state import pack_ridge
from dsal.analytic.rows import PhaseRows, from_arrays
from dsal.classifier import DSALClassifier, classifier_files
from dsal.classifier.inputs import columns_of, label_array
from dsal.errors import FileFormatError, InputError
from dsal.files.model_schema import CLASSIFIER
from dsal.files.schema import Anything, Each, Mismatch, Number, Record, Text, check_arrays
from dsal.files.tensors import flat
from dsal.linalg.backend import backend_for

_SENT = ("main.factor", "main.targets", "comp.factor", "comp.targets", "class_weight", "calibration")
_STREAMS = ("main", "comp")
_TOLD = Record({"features": Number(1, 2**31, whole=True), "classes": Each(Anything(1), 1), "expansion": Text()})
_ROUNDED = ("factor", "rows", "targets")  # what float32 halves


@dataclass(frozen=True)
class ClientSums:
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


def part_of(model: DSALClassifier, dtype: str = "float64", tolerance: float = 0.0) -> ClientSums:
    """Return the sums of a fitted client.

    Args:
        model: fitted on the client's rows.
        dtype: of the factor and Q; ``"float32"`` halves the bytes.
        tolerance: if positive, send the first r rows R of a pivoted factor instead of U, as few as leave
            ``trace(G - R^T R) <= tolerance * gamma``. That trace over gamma, added up over clients, bounds the error:
            ``|W' - W| <= error * |W|``, because W' - W = (R^T R + gamma I)^-1 (G - R^T R) W.
    """
    arrays, meta = classifier_files.pack(model, learning=True)
    sent = {name: np.asarray(arrays[name]) for name in _SENT if name in arrays}
    kept = ("classes", "features", "feature_names", "phases", "gammas", "ratio", "seed")
    facts = {name: meta[name] for name in kept} | {"expansion": model._learner.built().fingerprint(), "error": 0.0}
    if tolerance > 0:
        for name, ridge in zip(_STREAMS, model._learner.ridges, strict=False):
            del sent[f"{name}.factor"]
            sent[f"{name}.rows"], sent[f"{name}.order"], error = _truncated(ridge, tolerance)
            facts["error"] = max(facts["error"], error)
    return ClientSums(_rounded(sent, dtype), facts)


def sums_of(model: DSALClassifier, classes: Sequence[Any]) -> dict[str, NDArray[np.float64]]:
    """Return the sums of a fitted client as they add up: G in place of its factor, and columns for all ``classes``."""
    columns, learner = columns_of(model.classes_, label_array(list(classes))), model._learner
    sums = {"class_weight": np.zeros(len(classes)), "calibration": model._calibration.losses}
    sums["class_weight"][columns] = model._class_weight
    for name, ridge in zip(_STREAMS, learner.ridges, strict=False):
        sums[f"{name}.gram"] = learner.backend.pack(_gram(ridge))
        targets = np.zeros((len(classes), learner.size))
        targets[columns] = ridge.targets.T.cpu().numpy()
        sums[f"{name}.targets"] = targets
    return sums


def facts_of(options: Mapping[str, Any], X: Any, y: Any) -> dict[str, Any]:
    """Return what a client tells before its sums are added up with others': features and classes of its rows."""
    features = np.shape(X)[1]
    classes = list(dict.fromkeys(label_array(y).tolist()))
    return {"features": features, "classes": classes, "expansion": _fingerprint(options, features)}


def agreed(told: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the facts of the sum over clients, and the clients that cannot be part of it: those with other features.

    Args:
        told: what :func:`facts_of` returned, by client.
        options: see :func:`request`.
    """
    readable = {name: facts for name, facts in told.items() if _tells(facts)}
    if not readable:
        raise InputError("no client said which features and classes it has")
    features = Counter(facts["features"] for facts in readable.values()).most_common(1)[0][0]
    expansion = _fingerprint(options, features)
    able = {name: facts for name, facts in readable.items() if facts["expansion"] == expansion}
    gamma = options["gamma"]
    return {
        "classes": list(dict.fromkeys(label for facts in able.values() for label in facts["classes"])),
        "features": features,
        "feature_names": [],
        "phases": len(able),
        "gammas": [gamma, gamma if options["gamma_comp"] is None else options["gamma_comp"]],
        "ratio": [0.0, 0.0],
        "seed": options["random_state"],
        "expansion": expansion,
    }, set(told) - set(able)


def part_of_sums(
    sums: Mapping[str, NDArray[np.float64]], facts: Mapping[str, Any], options: Mapping[str, Any]
) -> ClientSums:
    """Return what one client with the rows of all would send, from what :func:`sums_of` returned, added up."""
    model, arrays = DSALClassifier(**options), dict(sums)
    backend, size = backend_for(model.device), model.expansion_size
    for name, gamma in zip(_STREAMS, facts["gammas"], strict=False):
        if f"{name}.gram" in arrays:
            ridge = Ridge(size, gamma, backend)
            with ridge.as_gram() as gram:
                gram.add_(backend.unpack(arrays.pop(f"{name}.gram"), size))
            arrays[f"{name}.factor"] = backend.pack(ridge.square)
    return ClientSums(arrays, dict(facts))


def model_of(part: ClientSums, options: Mapping[str, Any]) -> DSALClassifier:
    """Return the model whose sums a client sent, checked like a file from a stranger."""
    model = DSALClassifier(**options)
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in part.arrays.items()}
    try:
        meta = {**part.facts, "params": dict(options), "learning": True}
        expected = meta.pop("expansion")
        CLASSIFIER.facts.check({name: meta[name] for name in meta if name != "error"}, "what the client sent")
        learner = blank(model, meta["features"], compensated="comp.targets" in arrays)
        if learner.built().fingerprint() != expected:
            raise Mismatch("its expansion is another one: all clients need the same features and options")
        for name, gamma in zip(_STREAMS, meta["gammas"], strict=False):
            if f"{name}.rows" in arrays:
                rows = _unpacked(arrays.pop(f"{name}.rows"), arrays.pop(f"{name}.order"), learner.size)
                ridge = Ridge(learner.size, float(gamma), learner.backend)
                with ridge.as_gram() as gram:
                    learner.backend.add_rows_to_gram_(gram, rows.to(gram.device))
                arrays[f"{name}.factor"] = learner.backend.pack(ridge.square)
        state = learner.built().state_dict()
        arrays |= {f"expansion.{name}": buffer.cpu().numpy() for name, buffer in state.items()}
        for name in _STREAMS:  # placeholders, solved for below
            if f"{name}.targets" in arrays:
                arrays[f"{name}.weights"] = arrays[f"{name}.targets"]
        check_arrays(arrays, CLASSIFIER.expected(meta), CLASSIFIER.sizes(meta))
    except (Mismatch, KeyError, TypeError) as error:
        raise FileFormatError(f"what the client sent is not the state of such a model: {error}") from error
    classifier_files.unpack(model, arrays, meta, "what the client sent", model.device)
    for ridge in model._learner.ridges:
        ridge.carried = ridge.solved = None
    return model


def _tells(facts: Mapping[str, Any]) -> bool:
    """Return whether a client told what :func:`facts_of` returns."""
    try:
        _TOLD.check({name: facts[name] for name in _TOLD.keys}, "what the client told")
    except (Mismatch, KeyError):
        return False
    return True


def _fingerprint(options: Mapping[str, Any], features: int) -> str:
    """Return the hash of the expansion that every client with these options builds."""
    return blank(DSALClassifier(**options), features, compensated=False).built().fingerprint()


def blank(model: DSALClassifier, features: int, compensated: bool) -> Learner:
    """Return a learner with the options of ``model`` whose expansion is built, and which has learned nothing."""
    learner = model._fresh(int(model.random_state), compensated)
    empty = torch.empty(0, features, dtype=torch.float64)
    learner.expansion = learner.kind.build(features, learner.size, learner.seed, empty).to(learner.backend.device)
    return learner


def residue_part(
    options: Mapping[str, Any], X: Any, y: Any, weights: NDArray[Any], classes: Sequence[Any], first: bool,
    dtype: str = "float64",
) -> ClientSums:  # fmt: skip
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
    columns = columns_of(labels, label_array(list(classes)))
    cleansed = stream.cleanse and not first
    kept = torch.from_numpy(np.unique(columns) if cleansed else np.arange(len(classes))).to(backend.device)
    w = torch.from_numpy(np.array(weights, dtype=np.float64, order="F")).to(backend.device)
    ridge = Ridge(learner.size, float(gamma), backend)
    ridge.grow(len(classes))
    phase = PhaseRows(from_arrays(x, columns, backend.device), len(x), kept, len(classes))
    ridge.update(learner.residue_blocks(phase, stream, kept, w), len(x), kept)
    return ClientSums(_rounded(flat({"comp": pack_ridge(ridge)}), dtype), {"gamma": float(gamma)})


def with_residues(model: DSALClassifier, parts: Sequence[ClientSums], options: Mapping[str, Any]) -> DSALClassifier:
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
    arrays |= flat({"comp": {**pack_ridge(total), "weights": total.weights().T.cpu().numpy()}})
    meta |= {"params": dict(options), "gammas": [meta["gammas"][0], total.gamma]}
    whole = DSALClassifier()
    classifier_files.unpack(whole, {k: np.asarray(a) for k, a in arrays.items()}, meta, "the sum", model.device)
    return whole


def _gram(ridge: Ridge) -> Tensor:
    """Return G (d_B x d_B) of a stream."""
    gram = ridge.square.triu()  # (below, LAPACK leaves arbitrary values)
    gram = gram.T.contiguous().T  # column-major
    ridge.backend.unfactor_(gram)
    gram.diagonal().sub_(ridge.gamma)
    return gram


def _truncated(ridge: Ridge, tolerance: float) -> tuple[NDArray[Any], NDArray[Any], float]:
    """Return the rows of the pivoted factor, packed; the order of its columns; and trace(G - R^T R) / gamma."""
    gram = _gram(ridge).cpu().numpy()
    trace = gram.trace()
    factor, order, rank, _ = dpstrf(gram, tol=tolerance * ridge.gamma / ridge.size)
    rows = factor[:rank][np.triu(np.ones((rank, ridge.size), dtype=bool))]
    return rows, order.astype(np.int32) - 1, max(0.0, float(trace - rows @ rows)) / ridge.gamma


def _unpacked(rows: NDArray[Any], order: NDArray[Any], size: int) -> Tensor:
    """Return R (r x d_B) of :func:`_truncated`, its columns in their own order."""
    rank = round(size + 0.5 - math.sqrt(max((size + 0.5) ** 2 - 2 * rows.size, 0.0)))
    if rows.shape != (rank * (2 * size - rank + 1) // 2,) or sorted(order.ravel().tolist()) != [*range(size)]:
        raise Mismatch(f"its rows are not those of a factor of {size} columns")
    whole = np.zeros((rank, size))
    whole[np.triu(np.ones((rank, size), dtype=bool))] = rows
    whole[:, order.astype(np.int64)] = whole.copy()
    return torch.from_numpy(whole)


def _rounded(arrays: Mapping[str, NDArray[Any]], dtype: str) -> dict[str, NDArray[Any]]:
    if dtype not in ("float64", "float32"):
        raise InputError(f"dtype must be 'float64' or 'float32', not {dtype!r}")
    short = {name for name in arrays if name.rpartition(".")[2] in _ROUNDED}
    return {name: array.astype(dtype) if name in short else array for name, array in arrays.items()}
