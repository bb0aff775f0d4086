"""Requests and responses of the API, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import AfterValidator, BaseModel, Field

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
Match = Annotated[
    str | None,
    Header(alias="If-Match", max_length=200, description="The version the change is meant for; another gives 412."),
    AfterValidator(lambda tag: None if tag is None or tag.strip() == "*" else tag.strip().strip('"')),
]
SkipBroken = Annotated[bool, Query(description="Skip images that cannot be read, and report which.")]
LABELS = "One class name per image, or one for all images."
HASHES = "SHA-256 of the original file of each image, in hexadecimal, if the images are smaller copies."


class Failure(BaseModel):
    """Why a request was not answered, in one sentence."""

    error: str


FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Failure, "description": "Refused; nothing has changed."},
    503: {"model": Failure, "description": "Temporarily unavailable; see Retry-After."},
}


class Ranked(BaseModel):
    """A class and its probability."""

    label: str
    score: float


class Prediction(BaseModel):
    """The prediction for one image: ``label`` is the most likely class; ``novel`` means that it is probably none."""

    label: str
    score: float
    top_k: list[Ranked]
    novelty: float | None
    novel: bool


class Broken(BaseModel):
    """An image that could not be read, and why."""

    error: str


class Predictions(BaseModel):
    """Predictions in the order of the images."""

    model: str
    predictions: list[Prediction | Broken]


class LearnedAs(BaseModel):
    """An image, by its number from 1 on, and the class under which it was learned before."""

    image: int
    label: str


class Suggestion(Prediction):
    """The prediction for an image worth labelling, by its number from 1 on."""

    image: int


class Suggestions(BaseModel):
    """Images worth labelling, the most useful first; those that were learned before and copies are left out."""

    suggestions: list[Suggestion]
    learned_as: list[LearnedAs]
    broken: list[str]


class MistakenFor(BaseModel):
    """An image, by its number from 1 on, and the class that the model would have taken it for without learning it."""

    image: int
    label: str


class LessonOutcome(BaseModel):
    """A lesson that is on disk; ``learned_as`` are images that were skipped because another class has them."""

    images: int
    seen_before: int
    learned_as: list[LearnedAs] = []
    new_classes: list[str]
    known_classes: list[str]
    broken: list[str]
    loo_accuracy: float | None
    mistaken: list[MistakenFor] = []
    seconds: float
    repeated: bool = False


class LessonState(BaseModel):
    """A lesson by its key: ``none``, ``reading``, ``learning``, ``learned`` with its outcome, or ``cancelled``."""

    state: str
    done: int
    total: int
    outcome: dict[str, Any] | None = None


class Changed(BaseModel):
    """A change that is on disk; ``images`` that it concerns, if it is one of images."""

    changed: str
    images: int | None = None
    repeated: bool = False


class LeftOut(BaseModel):
    """Number of images of a class that were classified correctly, each as if it had not been learned."""

    label: str
    images: int
    right: int


class Confused(BaseModel):
    """Images of one class that are predicted as another, each as if it had not been learned."""

    label: str
    taken_for: str
    images: int


class Info(BaseModel):
    """Information about a model."""

    name: str
    bytes: int
    classes: dict[str, int]
    images: int
    phases: int
    backbone: str
    image_size: int
    expansion_size: int
    learns_on: bool
    left_out: list[LeftOut]
    confused: list[Confused]
    undo: list[str]
    redo: list[str]
    history_bytes: int
    version: str


class Version(BaseModel):
    """The version of a model; null if there is none of that name."""

    version: str | None


class Phone(BaseModel):
    """The page as other machines can open it, null if they cannot, and its QR code: rows of 0 (light) and 1 (dark)."""

    url: str | None
    qr: list[str]


class Listed(BaseModel):
    """A model in the folder."""

    name: str
    bytes: int
    modified: float
    classes: list[str]


class Models(BaseModel):
    """The models in the folder, and the limits of this server."""

    models: list[Listed]
    limits: dict[str, int]
    version: str


class Rename(BaseModel):
    """A class and its new name."""

    old: str = Field(max_length=1000)
    new: str = Field(max_length=1000)


class Drop(BaseModel):
    """A class to remove."""

    label: str = Field(max_length=1000)


def body(**content: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a body that its route reads itself: schemas by kind of content."""
    kinds = {"json": "application/json", "form": "multipart/form-data"}
    return {"requestBody": {"required": True, "content": {kinds[kind]: {"schema": content[kind]} for kind in content}}}


def fields(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that must have these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def image_body(required: str = "", **texts: str) -> dict[str, Any]:
    """Return the OpenAPI description of a body with images and fields of texts, one of them perhaps required."""

    def fields(**image: str) -> dict[str, Any]:
        arrays = {"images": {"type": "array", "items": {"type": "string", **image}, "minItems": 1}}
        for name, meaning in texts.items():
            arrays[name] = {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": meaning}
        return {"type": "object", "properties": arrays, "required": ["images", required] if required else ["images"]}

    return body(form=fields(format="binary"), json=fields(contentEncoding="base64"))
