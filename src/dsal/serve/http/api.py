"""``/api``: teach, query and correct models; used by the page and by other programs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from dsal.base import __version__
from dsal.image_model.image_predictor import most_useful
from dsal.image_model.outcomes import THRESHOLD
from dsal.image_model.sources import KEY_BYTES, content_keys
from dsal.serve.engine.names import model_path
from dsal.serve.engine.service import ReadImages, ScoredImages, Service
from dsal.serve.http import schemas
from dsal.serve.http.bodies import Bodies
from dsal.serve.http.schemas import Key, SkipBroken
from dsal.serve.http_errors import Refusal

_BYTES_EACH = 400  # of a prediction as JSON, about
_HASH = re.compile("[0-9A-Fa-f]{64}")


def api_routes(service: Service, bodies: Bodies) -> APIRouter:
    """Return the routes under ``/api``."""
    router = APIRouter(prefix="/api/models", responses=schemas.FAILURES)
    settings, library = service.settings, service.library

    @router.post("/{name}/predict", openapi_extra=schemas.image_body(), response_model=schemas.Predictions)
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
        images, _ = await bodies.images(request)
        found = await service.scores(await service.snapshot(name), images, skip_broken)
        size = _BYTES_EACH * len(images) + found.scores.probabilities.size * 8
        text = await bodies.off_loop(size, _predictions, name, len(images), found, top_k, threshold)
        return Response(text, media_type="application/json")

    @router.post("/{name}/learn", openapi_extra=schemas.image_body("labels", labels=schemas.LABELS))
    async def learn(
        name: str, request: Request, key: Key = None, skip_broken: SkipBroken = False
    ) -> schemas.LessonOutcome:
        """Teach new classes, or more images of known ones; create the model if it does not exist.

        The response is sent once the lesson is on disk. Sent again with the same Idempotency-Key, it counts once.
        """
        model_path(library.folder, name)
        images, labels = await bodies.labelled_images(request)
        outcome = await service.learn(name, key, images, labels, skip_broken)
        return schemas.LessonOutcome(**outcome)

    @router.post("/{name}/suggest", openapi_extra=schemas.image_body(hashes=schemas.HASHES))
    async def suggest(
        name: str, request: Request, count: Annotated[int, Query(ge=1, le=1000)] = 20, skip_broken: SkipBroken = False
    ) -> schemas.Suggestions:
        """Suggest unlabelled images worth labelling: typical of what the model is unsure of, and diverse."""
        model_path(library.folder, name)
        images, hashes = await bodies.images(request, "hashes")
        keys = _keys(hashes, len(images)) if hashes else await asyncio.to_thread(content_keys, images)
        found = await service.read(name, images, skip_broken)
        return await asyncio.to_thread(_suggestions, found, keys, count)

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

    return router


def _predictions(name: str, images: int, found: ScoredImages, top_k: int, threshold: float) -> bytes:
    """Return :class:`schemas.Predictions` as JSON, written image by image: other threads can run in between."""
    answers = [b""] * images
    for row, reason in found.broken.items():
        answers[row] = schemas.Broken(error=reason).model_dump_json().encode()
    paths = [None] * len(found.rows)
    predictions = found.predictor.predictions(found.scores, paths, top_k=top_k, threshold=threshold)
    for row, prediction in zip(found.rows, predictions, strict=True):
        answers[row] = schemas.Prediction(**prediction.facts()).model_dump_json().encode()
    return b'{"model":%s,"predictions":[%s]}' % (json.dumps(name).encode(), b",".join(answers))


def _keys(hashes: list[Any], images: int) -> list[bytes]:
    """Return content keys from hashes of the original files."""
    if len(hashes) != images or not all(isinstance(text, str) and _HASH.fullmatch(text) for text in hashes):
        raise Refusal(422, f"hashes must be 64 hexadecimal digits for each of {images} images: the SHA-256 of its file")
    return [bytes.fromhex(text)[:KEY_BYTES] for text in hashes]


def _suggestions(found: ReadImages, keys: Sequence[bytes | None], count: int) -> schemas.Suggestions:
    """Choose the images worth labelling among those that were not learned, each content once."""
    snapshot = found.snapshot
    learned = [(row, snapshot.seen.labels(keys[row])) for row in found.rows]
    new: dict[bytes | None, int] = {}
    for i, (row, labels) in enumerate(learned):
        if not labels:
            new.setdefault(keys[row], i)
    distinct, suggestions = list(new.values()), []
    if distinct:
        scores = snapshot.predictor.scores(found.x[distinct])
        chosen = most_useful(found.x[distinct], scores.probabilities, count)
        best = snapshot.predictor.predictions(scores.take(chosen), [None] * len(chosen), top_k=5, threshold=THRESHOLD)
        suggestions = [
            schemas.Suggestion(image=found.rows[distinct[i]] + 1, **prediction.facts())
            for i, prediction in zip(chosen, best, strict=True)
        ]
    return schemas.Suggestions(
        suggestions=suggestions,
        learned_as=[schemas.LearnedAs(image=row + 1, label=labels[0]) for row, labels in learned if labels],
        broken=[f"image {row + 1}: {reason}" for row, reason in found.broken.items()],
    )
