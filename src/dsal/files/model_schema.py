"""Schemas of classifier and image model files, usable without PyTorch."""

from __future__ import annotations

from typing import Any

from dsal.files.schema import (
    ANY_ARRAY,
    ANY_TABLE,
    Anything,
    Array,
    Each,
    Flag,
    Maybe,
    Number,
    Record,
    Ruled,
    Schema,
    Text,
    triangle,
)  # fmt: skip

_COUNT = Number(0, 2**53, whole=True)
_COUNTS = Record({}, rest=Record({}, rest=_COUNT))
_LABEL = Ruled(
    Anything(1), lambda value: None if isinstance(value, (str, int, float)) else "a label is text or a number"
)

CARD_KEYS = {
    "architecture": Text(200),
    "in_channels": Number(1, 64, whole=True),
    "size": Number(1, 4096, whole=True),
    "mean": Each(Number(-1e6, 1e6), 1, 64),
    "std": Each(Number(1e-6, 1e6), 1, 64),
}
"""Facts of the card of a backbone that predictions need."""

LEARNER = Record({"phases": _COUNT, "gammas": Each(Maybe(Number(0, 1e300)), 1), "ratio": Each(Number(), 2, 2)})
"""Facts of a learner: :meth:`dsal.analytic.learner.Learner.facts`."""

_CLASSIFIER = Record(
    {
        **LEARNER.keys,
        "params": Record(
            {"expansion_size": Number(1, 2**24, whole=True)},
            optional=dict.fromkeys(("expansion", "activation", "main_activation"), Text()),
            rest=Anything(),
        ),
        "seed": Number(0, 2**64, whole=True),
        "classes": Each(_LABEL, 1),
        "features": Number(1, 2**31, whole=True),
        "feature_names": Each(Text()),
        "learning": Flag(),
    },
    optional={"kind": Text()},
)
_VERSION = Record(
    {
        "id": Text(64),
        "change": Text(10_000),
        "meta": ANY_TABLE,
        "left_out": _COUNTS,
        "same": Record({}, rest=Text(1000)),
    }
)
_IMAGE_MODEL = Record(
    {
        "card": Record({**CARD_KEYS, "seen_classes": Maybe(Each(_COUNT))}, rest=Anything()),
        "backbone_sha256": Text(64),
        "classifier": _CLASSIFIER,
        "dsal": Text(100),
        "counts": Record({}, rest=_COUNT),
        "temperature": Number(0),
        "compensation": Number(0),
        "left_out": _COUNTS,
        "notes": ANY_TABLE,
        "version_id": Text(64),
        "history": Each(_VERSION, most=1000),
        "undone": Each(_VERSION, most=1000),
    }
)


def learner_arrays(learning: bool, prefix: str = "") -> dict[str, Array]:
    """Return the requirements on a learner's arrays (:mod:`dsal.analytic.ridge_state`), by name after ``prefix``.

    Args:
        learning: whether to require what further learning needs, or the weights alone.
        prefix: a regular expression.
    """
    square = {"factor": (triangle("expansion_size"),), "targets": ("classes", "expansion_size")}
    weights = {"weights": ("classes", "expansion_size"), "carried": (1,)}
    required = square if learning else {"weights": weights["weights"]}
    return {
        rf"{prefix}expansion\.projection": Array("float64", ("features", "expansion_size")),
        rf"{prefix}expansion\.width": Array("float64", (), low=1e-150, optional=True),
        rf"{prefix}expansion\..*": ANY_ARRAY,
        **{
            rf"{prefix}{stream}\.{key}": Array("float64", shape, optional=key not in required or stream != "main")
            for stream in ("main", r"comp\d*")
            for key, shape in {**square, **weights}.items()
        },
    }


def _classifier_arrays(facts: dict[str, Any], prefix: str = "") -> dict[str, Array]:
    return {
        **learner_arrays(facts["learning"], prefix),
        rf"{prefix}main\.weights": Array("float64", ("classes", "expansion_size")),
        f"{prefix}calibration": Array("float64", ("temperatures",)),
        f"{prefix}class_weight": Array("float64", ("classes",), low=0, optional=True),
    }


def _image_arrays(facts: dict[str, Any]) -> dict[str, Array]:
    return {
        **_classifier_arrays(facts["classifier"], r"classifier\."),
        r"novelty\.counts": Array("float64", ("classes",), low=0),
        r"novelty\.sums": Array("float64", ("classes", "pooled")),
        r"novelty\.products": Array("float64", ("pooled", "pooled")),
        r"usual\.counts": Array("float64", ("_rows", "_columns"), low=0),
        r"usual\.shape": Array("float64", ("_cells", 3), low=0, optional=True),
        r"seen\.keys": Array("uint8", ("images", "_bytes")),
        r"seen\.columns": Array("int32", ("images",), 0, len(facts["classifier"]["classes"]) - 1),
        r"backbone\..*": ANY_ARRAY,
        r"(history|undone)\..*": ANY_ARRAY,
    }


def _sizes(facts: dict[str, Any]) -> dict[str, int]:
    size = facts["params"]["expansion_size"]
    return {"classes": len(facts["classes"]), "features": facts["features"], "expansion_size": size}


CLASSIFIER = Schema("classifier", _CLASSIFIER, _classifier_arrays, _sizes)
IMAGE_MODEL = Schema("image model", _IMAGE_MODEL, _image_arrays, lambda facts: _sizes(facts["classifier"]))
