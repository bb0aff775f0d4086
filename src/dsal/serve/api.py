"""``/api``: teach, ask and correct models, for people's programs and for the page."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from dsal import __version__
from dsal.images import ImageModel
from dsal.images.model import THRESHOLD
from dsal.serve import schemas
from dsal.serve.bodies import Bodies, decode_base64, parse_form, parse_json
from dsal.serve.errors import Refusal
from dsal.serve.library import Outcome, check_label
from dsal.serve.names import class_label, model_path
from dsal.serve.service import Service

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
SkipBroken = Annotated[bool, Query(description="Pass over images that cannot be read, and say which.")]
_BYTES = {"type": "string", "format": "binary"}
_FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": schemas.Failure, "description": "Refused; nothing was changed."},
    503: {"model": schemas.Failure, "description": "Not now; see Retry-After."},
}


def api_routes(service: Service, bodies: Bodies) -> APIRouter:
    """The routes, on a service."""
    router = APIRouter(prefix="/api/models", responses=_FAILURES)
    settings, library = service.settings, service.library

    @router.get("")
    def list_models() -> schemas.Models:
        """The models of the folder."""
        return schemas.Models(
            models=[schemas.Listed(**listed) for listed in library.listing()],
            limits={name: getattr(settings, name) for name in ("max_body", "max_images", "max_pixels", "max_upload")},
            version=__version__,
        )

    @router.get("/{name}/info")
    async def info(name: str) -> schemas.Info:
        """Classes with the images learned of each, sizes, and leave-one-out answers."""
        facts = (await service.snapshot(name)).facts
        return schemas.Info(name=name, bytes=model_path(library.folder, name).stat().st_size, **facts)

    @router.post("/{name}/predict", openapi_extra=_body(labelled=False))
    async def predict(
        name: str,
        request: Request,
        top_k: Annotated[int, Query(ge=1, le=1000)] = 5,
        threshold: Annotated[float, Query(ge=0, le=1)] = THRESHOLD,
        skip_broken: SkipBroken = False,
    ) -> schemas.Predictions:
        """Name images, or say that they look like nothing that was taught.

        Novelty is the fraction of the images learned that look less strange than this one.
        """
        model_path(library.folder, name)
        async with bodies.read(request) as body:
            images, _ = _images(request, body, settings.max_images, labelled=False)
            del body
            found = await service.scores(name, images, skip_broken)
        classes = found.snapshot.classes
        answers: list[schemas.Prediction | schemas.Broken] = [
            schemas.Broken(error=found.broken.get(row, "")) for row in range(len(images))
        ]
        order = (-found.probabilities).argsort(axis=1, kind="stable")[:, :top_k]
        for row, best, chances, novelty in zip(
            found.rows, order.tolist(), found.probabilities.tolist(), found.novelty.tolist(), strict=True
        ):
            ranked = [schemas.Ranked(label=classes[column], score=chances[column]) for column in best]
            answers[row] = schemas.Prediction(
                label=ranked[0].label,
                score=ranked[0].score,
                top_k=ranked,
                novelty=None if math.isnan(novelty) else novelty,
                novel=novelty > threshold,
            )
        return schemas.Predictions(model=name, predictions=answers)

    @router.post("/{name}/learn", openapi_extra=_body(labelled=True))
    async def learn(
        name: str, request: Request, key: Key = None, skip_broken: SkipBroken = False
    ) -> schemas.LessonOutcome:
        """Teach new classes, or more images of known ones; a model that is not there is made.

        The answer comes when the lesson is on the disk. Sent again with the same Idempotency-Key, it counts once.
        """
        model_path(library.folder, name)
        async with bodies.read(request) as body:
            images, labels = _images(request, body, settings.max_images, labelled=True)
            del body
            outcome = await service.learn(name, key, images, labels, skip_broken)
        return schemas.LessonOutcome(**outcome)

    @router.get("/{name}/lessons/{key}")
    async def lesson(name: str, key: str) -> schemas.LessonState:
        """How the lesson with this Idempotency-Key is doing: none, reading, learning, or learned with its outcome."""
        under_way = service.lessons.get((name, key))
        if under_way is not None:
            return schemas.LessonState(state=under_way.stage, done=under_way.done, total=under_way.total)
        outcome = None
        if model_path(library.folder, name).exists():
            await service.snapshot(name)
            outcome = library.outcome(name, key)
        if outcome is None:
            return schemas.LessonState(state="none", done=0, total=0)
        images = outcome.get("images", 0)
        return schemas.LessonState(state="learned", done=images, total=images, outcome=outcome)

    @router.delete("/{name}/lessons/{key}")
    async def cancel(name: str, key: str) -> schemas.LessonState:
        """Cancel a lesson that is being read; nothing of it is learned."""
        model_path(library.folder, name)
        under_way = service.lessons.get((name, key))
        if under_way is None:
            raise Refusal(404, "there is no lesson with this key under way")
        if under_way.stage != "reading":
            raise Refusal(409, "the lesson is being written and cannot be cancelled any more: undo it")
        under_way.cancelled = True
        return schemas.LessonState(state="cancelled", done=under_way.done, total=under_way.total)

    @router.post("/{name}/rename")
    async def rename(name: str, change: schemas.Rename, key: Key = None) -> schemas.Changed:
        """Give a class another name."""
        old, new = change.old, class_label(change.new)

        def action(model: ImageModel) -> Outcome:
            check_label(model, old)
            model.rename(old, new)
            return {"changed": f"renamed {old!r} to {new!r}"}

        return schemas.Changed(**await service.change(name, key, json.dumps(["rename", old, new]), action))

    @router.post("/{name}/drop")
    async def drop(name: str, change: schemas.Drop, key: Key = None) -> schemas.Changed:
        """Take a class away: it is never answered again."""
        label = change.label

        def action(model: ImageModel) -> Outcome:
            check_label(model, label)
            model.drop(label)
            return {"changed": f"dropped {label!r}"}

        return schemas.Changed(**await service.change(name, key, json.dumps(["drop", label]), action))

    @router.post("/{name}/undo")
    async def undo(name: str, key: Key = None) -> schemas.Changed:
        """Make the model what it was before its last change."""

        def action(model: ImageModel) -> Outcome:
            notes = model.notes
            what = model.undo()
            model.notes = notes  # a lesson that was undone and is sent again must not come back
            return {"changed": f"undone: {what}"}

        return schemas.Changed(**await service.change(name, key, "undo", action))

    return router


def _body(labelled: bool) -> dict[str, Any]:
    """What OpenAPI says of a body with images."""
    form: dict[str, Any] = {"images": {"type": "array", "items": _BYTES, "minItems": 1}}
    plain: dict[str, Any] = {
        "images": {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}, "minItems": 1}
    }
    if labelled:
        labels = {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": "A class name for each image, or one for all.",
        }
        form["labels"] = plain["labels"] = labels
    required = list(form)
    content = {
        "multipart/form-data": {"schema": {"type": "object", "properties": form, "required": required}},
        "application/json": {"schema": {"type": "object", "properties": plain, "required": required}},
    }
    return {"requestBody": {"required": True, "content": content}}


def _images(request: Request, body: bytes, most: int, labelled: bool) -> tuple[list[bytes], list[str]]:
    """Image files and labels of a multipart or JSON body."""
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    labels: list[Any]
    if kind == "multipart/form-data":
        form = parse_form(content_type, body, 2 * most + 10)
        images, labels = form.files("images"), list(form.texts("labels"))
    elif kind == "application/json":
        document = parse_json(body)
        if not isinstance(document, dict) or not isinstance(document.get("images"), list):
            raise Refusal(
                422, 'the body must be {"images": [base64, ...]' + (', "labels": [...]}' if labelled else "}")
            )
        given = document.get("labels", [])
        labels = given if isinstance(given, list) else [given]
        if len(document["images"]) > most:
            raise Refusal(413, f"a request may bring {most} images, got {len(document['images'])}")
        images = [decode_base64(image) for image in document["images"]]
    else:
        raise Refusal(415, f"images come as multipart/form-data or application/json, not {kind[:80] or 'nothing'!r}")
    if not images:
        raise Refusal(422, "there are no images: send them as files in the field 'images'")
    if len(images) > most:
        raise Refusal(413, f"a request may bring {most} images, got {len(images)}")
    if labelled:
        labels = [class_label(label) for label in labels]
        labels = labels * len(images) if len(labels) == 1 else labels
        if len(labels) != len(images):
            raise Refusal(
                422, f"send one label for all images or one for each: {len(images)} images, {len(labels)} labels"
            )
    return images, labels
