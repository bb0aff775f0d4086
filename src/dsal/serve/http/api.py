"""``/api``: teach, query and correct models; used by the page and by other programs."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel

from dsal.base.version import __version__
from dsal.image_model import ImageModel
from dsal.image_model.outcomes import THRESHOLD
from dsal.serve.engine.library import Outcome, check_label
from dsal.serve.engine.names import class_label, model_path
from dsal.serve.engine.service import ScoredImages, Service
from dsal.serve.engine.version_tag import check_version, version_tag
from dsal.serve.http import schemas
from dsal.serve.http.bodies import Bodies, decode_base64, form_files, form_texts
from dsal.serve.http_errors import Refusal

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
Match = Annotated[
    str | None,
    Header(alias="If-Match", max_length=200, description="The version the change is meant for; another gives 412."),
]
SkipBroken = Annotated[bool, Query(description="Skip images that cannot be read, and report which.")]
_BYTES = {"type": "string", "format": "binary"}
_FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": schemas.Failure, "description": "Refused; nothing has changed."},
    503: {"model": schemas.Failure, "description": "Temporarily unavailable; see Retry-After."},
}


def api_routes(service: Service, bodies: Bodies) -> APIRouter:
    """Return the routes under ``/api``."""
    router = APIRouter(prefix="/api/models", responses=_FAILURES)
    settings, library = service.settings, service.library

    @router.post("/{name}/predict", openapi_extra=_body(labelled=False), response_model=schemas.Predictions)
    async def predict(
        name: str,
        request: Request,
        top_k: Annotated[int, Query(ge=1, le=1000)] = 5,
        threshold: Annotated[float, Query(ge=0, le=1)] = THRESHOLD,
        skip_broken: SkipBroken = False,
    ) -> Response:
        """Predict the labels of images, and flag images that look like none of the classes.

        Novelty is the fraction of the learned images that look less unusual than this one.
        """
        model_path(library.folder, name)
        images, _ = await _images(bodies, request, labelled=False)
        found = await service.scores(await service.snapshot(name), images, skip_broken)
        size = found.scores.probabilities.size * 8
        text = await bodies.off_loop(size, _predictions, name, len(images), found, top_k, threshold)
        return Response(text, media_type="application/json")

    @router.post("/{name}/learn", openapi_extra=_body(labelled=True))
    async def learn(
        name: str, request: Request, key: Key = None, skip_broken: SkipBroken = False
    ) -> schemas.LessonOutcome:
        """Teach new classes, or more images of known ones; create the model if it does not exist.

        The response is sent once the lesson is on disk. Sent again with the same Idempotency-Key, it counts once.
        """
        model_path(library.folder, name)
        images, labels = await _images(bodies, request, labelled=True)
        outcome = await service.learn(name, key, images, labels, skip_broken)
        return schemas.LessonOutcome(**outcome)

    @router.get("")
    def list_models() -> schemas.Models:
        """List the models in the folder."""
        return schemas.Models(
            models=[schemas.Listed(**listed) for listed in library.listing()],
            limits={name: getattr(settings, name) for name in ("max_body", "max_images", "max_pixels", "max_upload")},
            version=__version__,
        )

    @router.get("/{name}/info")
    async def info(name: str, response: Response) -> schemas.Info:
        """Return the classes with their numbers of images, sizes, and leave-one-out results; the version as ETag."""
        path = model_path(library.folder, name)
        version = version_tag(path)  # before the facts: if they are newer, the next change is refused, not misled
        facts = (await service.snapshot(name)).facts
        response.headers["ETag"] = f'"{version}"'
        return schemas.Info(name=name, bytes=path.stat().st_size, version=version or "", **facts)

    @router.get("/{name}/version")
    def version(name: str) -> schemas.Version:
        """Return the version of a model; it changes with every change, by whichever program."""
        return schemas.Version(version=version_tag(model_path(library.folder, name)))

    @router.get("/{name}/lessons/{key}")
    async def lesson(name: str, key: str) -> schemas.LessonState:
        """Return the state of the lesson with this key: none, reading, learning, or learned with its outcome."""
        under_way = service.lessons.get((name, key))
        if under_way is not None:
            return schemas.LessonState(state=under_way.stage, done=under_way.done, total=under_way.total)
        outcome = await asyncio.to_thread(library.outcome, name, key)
        if outcome is None:
            return schemas.LessonState(state="none", done=0, total=0)
        images = outcome.get("images", 0)
        return schemas.LessonState(state="learned", done=images, total=images, outcome=outcome)

    @router.delete("/{name}/lessons/{key}")
    async def cancel(name: str, key: str) -> schemas.LessonState:
        """Cancel a lesson whose images are still being read; nothing of it is learned."""
        model_path(library.folder, name)
        under_way = service.lessons.get((name, key))
        if under_way is None:
            raise Refusal(404, "no lesson with this key is in progress")
        if under_way.stage != "reading":
            raise Refusal(409, "the lesson is being written and can no longer be cancelled: undo it instead")
        under_way.cancelled = True
        return schemas.LessonState(state="cancelled", done=under_way.done, total=under_way.total)

    @router.post("/{name}/rename", openapi_extra=_document(schemas.Rename))
    async def rename(name: str, request: Request, key: Key = None, match: Match = None) -> schemas.Changed:
        """Rename a class."""
        change = await bodies.document(request, schemas.Rename)
        old, new = change.old, class_label(change.new)

        def action(model: ImageModel) -> Outcome:
            check_version(model_path(library.folder, name), model, match)
            check_label(model, old)
            model.rename(old, new)
            return {"changed": f"renamed {old!r} to {new!r}"}

        return schemas.Changed(**await service.change(name, key, json.dumps(["rename", old, new]), action))

    @router.post("/{name}/drop", openapi_extra=_document(schemas.Drop))
    async def drop(name: str, request: Request, key: Key = None, match: Match = None) -> schemas.Changed:
        """Remove a class: it is no longer predicted."""
        label = (await bodies.document(request, schemas.Drop)).label

        def action(model: ImageModel) -> Outcome:
            check_version(model_path(library.folder, name), model, match)
            check_label(model, label)
            model.drop(label)
            return {"changed": f"dropped {label!r}"}

        return schemas.Changed(**await service.change(name, key, json.dumps(["drop", label]), action))

    @router.post("/{name}/undo")
    async def undo(name: str, key: Key = None, match: Match = None) -> schemas.Changed:
        """Undo the last change of the model; with If-Match, only if it is the change the client has seen."""

        def action(model: ImageModel) -> Outcome:
            check_version(model_path(library.folder, name), model, match)
            notes = model.notes
            undone = model.undo()
            model.notes = notes  # an undone lesson that is sent again must not be learned again
            return {"changed": f"undone: {undone}"}

        return schemas.Changed(**await service.change(name, key, "undo", action))

    return router


def _body(labelled: bool) -> dict[str, Any]:
    """Return the OpenAPI description of a request body with images."""
    form: dict[str, Any] = {"images": {"type": "array", "items": _BYTES, "minItems": 1}}
    plain: dict[str, Any] = {
        "images": {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}, "minItems": 1}
    }
    if labelled:
        labels = {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": "One class name per image, or one for all images.",
        }
        form["labels"] = plain["labels"] = labels
    required = list(form)
    content = {
        "multipart/form-data": {"schema": {"type": "object", "properties": form, "required": required}},
        "application/json": {"schema": {"type": "object", "properties": plain, "required": required}},
    }
    return {"requestBody": {"required": True, "content": content}}


def _document(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a request body in JSON."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


async def _images(bodies: Bodies, request: Request, labelled: bool) -> tuple[list[bytes], list[str]]:
    """Return the image files and labels of a multipart or JSON body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    max_images = bodies.settings.max_images
    labels: list[Any]
    if kind == "multipart/form-data":
        form = await bodies.form(request)
        images, labels = form_files(form, "images"), list(form_texts(form, "labels"))
        await form.close()
    elif kind == "application/json":
        body = await bodies.read(request)
        document = await bodies.json(body)
        if not isinstance(document, dict) or not isinstance(document.get("images"), list):
            raise Refusal(
                422, 'the body must be {"images": [base64, ...]' + (', "labels": [...]}' if labelled else "}")
            )
        given = document.get("labels", [])
        labels = given if isinstance(given, list) else [given]
        if len(document["images"]) > max_images:
            raise Refusal(413, f"a request may contain at most {max_images} images, got {len(document['images'])}")
        images = await bodies.off_loop(len(body), lambda: [decode_base64(image) for image in document["images"]])
    else:
        raise Refusal(415, f"send images as multipart/form-data or application/json, not {kind[:80] or 'nothing'!r}")
    if not images:
        raise Refusal(422, "the request has no images: send them as files in the field 'images'")
    if labelled:
        if len(labels) not in (1, len(images)):
            raise Refusal(
                422, f"send one label for all images or one per image: {len(images)} images, {len(labels)} labels"
            )
        labels = [class_label(label) for label in labels]
        labels = labels * len(images) if len(labels) == 1 else labels
    return images, labels


def _predictions(name: str, images: int, found: ScoredImages, top_k: int, threshold: float) -> bytes:
    """Return :class:`schemas.Predictions` as JSON, written image by image: other threads can run in between."""
    answers = [b""] * images
    for row, reason in found.broken.items():
        answers[row] = schemas.Broken(error=reason).model_dump_json().encode()
    paths = [None] * len(found.rows)
    predictions = found.predictor.predictions(found.scores, paths, top_k=top_k, threshold=threshold)
    for row, prediction in zip(found.rows, predictions, strict=True):
        answer = schemas.Prediction(
            label=prediction.label,
            score=prediction.score,
            top_k=[schemas.Ranked(label=label, score=score) for label, score in prediction.top_k],
            novelty=None if math.isnan(prediction.novelty) else prediction.novelty,
            novel=prediction.novel,
        )
        answers[row] = answer.model_dump_json().encode()
    return b'{"model":%s,"predictions":[%s]}' % (json.dumps(name).encode(), b",".join(answers))
