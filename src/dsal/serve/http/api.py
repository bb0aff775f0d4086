"""``/api``: teach, query and correct models; used by the page and by other programs."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import AfterValidator

from dsal.base import __version__
from dsal.image_model import ImageModel
from dsal.image_model.outcomes import THRESHOLD
from dsal.serve.engine.library import Outcome, check_label
from dsal.serve.engine.names import class_label, model_path
from dsal.serve.engine.service import ScoredImages, Service
from dsal.serve.http import schemas
from dsal.serve.http.bodies import Bodies, decode_base64, form_files, form_texts
from dsal.serve.http_errors import Refusal

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
Match = Annotated[
    str | None,
    Header(alias="If-Match", max_length=200, description="The version the change is meant for; another gives 412."),
    AfterValidator(lambda tag: None if tag is None or tag.strip() == "*" else tag.strip().strip('"')),
]
SkipBroken = Annotated[bool, Query(description="Skip images that cannot be read, and report which.")]


def api_routes(service: Service, bodies: Bodies) -> APIRouter:
    """Return the routes under ``/api``."""
    router = APIRouter(prefix="/api/models", responses=schemas.FAILURES)
    settings, library = service.settings, service.library

    @router.post("/{name}/predict", openapi_extra=_with_images(labelled=False), response_model=schemas.Predictions)
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

    @router.post("/{name}/learn", openapi_extra=_with_images(labelled=True))
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
            limits={name: getattr(settings, name) for name in ("max_body", "max_images", "max_upload")}
            | {"max_pixels": settings.pixels},
            version=__version__,
        )

    @router.get("/{name}/info")
    async def info(name: str, response: Response) -> schemas.Info:
        """Return the classes with their numbers of images, sizes, and leave-one-out results; the version as ETag."""
        facts = (await service.snapshot(name)).facts
        response.headers["ETag"] = f'"{facts["version"]}"'
        return schemas.Info(name=name, bytes=model_path(library.folder, name).stat().st_size, **facts)

    @router.get("/{name}/version")
    def version(name: str) -> schemas.Version:
        """Return the version of a model: every change by anybody sets a new one, and undo returns to old ones."""
        return schemas.Version(version=library.version(name))

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

    async def changed(
        name: str, key: str | None, match: str | None, what: str, action: Callable[[ImageModel], str]
    ) -> schemas.Changed:
        def checked(model: ImageModel) -> Outcome:
            model.timeline.check(match)
            return {"changed": action(model)}

        return schemas.Changed(**await service.change(name, key, what, checked))

    @router.post("/{name}/rename", openapi_extra=schemas.body(json=schemas.Rename.model_json_schema()))
    async def rename(name: str, request: Request, key: Key = None, match: Match = None) -> schemas.Changed:
        """Rename a class."""
        change = await bodies.document(request, schemas.Rename)
        old, new = change.old, class_label(change.new)

        def action(model: ImageModel) -> str:
            check_label(model, old)
            model.rename(old, new)
            return f"renamed {old!r} to {new!r}"

        return await changed(name, key, match, json.dumps(["rename", old, new]), action)

    @router.post("/{name}/drop", openapi_extra=schemas.body(json=schemas.Drop.model_json_schema()))
    async def drop(name: str, request: Request, key: Key = None, match: Match = None) -> schemas.Changed:
        """Remove a class: it is no longer predicted."""
        label = (await bodies.document(request, schemas.Drop)).label

        def action(model: ImageModel) -> str:
            check_label(model, label)
            model.drop(label)
            return f"dropped {label!r}"

        return await changed(name, key, match, json.dumps(["drop", label]), action)

    @router.post("/{name}/undo")
    async def undo(name: str, key: Key = None, match: Match = None) -> schemas.Changed:
        """Undo the last change of the model; with If-Match, only if it is the change the client has seen."""

        def action(model: ImageModel) -> str:
            notes = model.notes
            undone = model.undo()
            model.notes = notes  # an undone lesson that is sent again must not be learned again
            return f"undone: {undone}"

        return await changed(name, key, match, "undo", action)

    return router


def _with_images(labelled: bool) -> dict[str, Any]:
    """Return the OpenAPI description of a request body with images."""

    def array(**items: str) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", **items}, "minItems": 1}

    more = (
        {"labels": {**array(), "description": "One class name per image, or one for all images."}} if labelled else {}
    )
    form, plain = array(format="binary"), array(contentEncoding="base64")
    return schemas.body(form=schemas.fields(images=form, **more), json=schemas.fields(images=plain, **more))


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
