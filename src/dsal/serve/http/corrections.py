"""Corrections of a model: of its classes, of single images, and of the last change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import numpy as np
from fastapi import APIRouter, Request

from dsal.image_model import ImageModel
from dsal.image_model.sources import content_keys, plural
from dsal.serve.engine.library import Outcome, check_label
from dsal.serve.engine.names import class_label, model_path
from dsal.serve.engine.service import ReadImages, Service, digest_of
from dsal.serve.http import schemas
from dsal.serve.http.bodies import Bodies
from dsal.serve.http.schemas import Key, Match
from dsal.serve.http_errors import Refusal, Unchanged


def correction_routes(service: Service, bodies: Bodies) -> APIRouter:
    """Return the routes of corrections, under ``/api``."""
    router = APIRouter(prefix="/api/models", responses=schemas.FAILURES)
    folder = service.library.folder

    async def change(
        name: str, key: str | None, match: str | None, what: str, action: Callable[[ImageModel], Outcome]
    ) -> schemas.Changed:
        """Change a model if it is the version that the client expects."""

        def checked(model: ImageModel) -> Outcome:
            model.timeline.check(match)
            return action(model)

        return schemas.Changed(**await service.change(name, key, what, checked))

    @router.post("/{name}/rename", openapi_extra=schemas.body(json=schemas.Rename.model_json_schema()))
    async def rename(name: str, request: Request, key: Key = None, match: Match = None) -> schemas.Changed:
        """Rename a class."""
        wanted = await bodies.document(request, schemas.Rename)
        old, new = wanted.old, class_label(wanted.new)

        def action(model: ImageModel) -> Outcome:
            check_label(model, old)
            model.rename(old, new)
            return {"changed": f"renamed {old!r} to {new!r}"}

        return await change(name, key, match, json.dumps(["rename", old, new]), action)

    @router.post("/{name}/drop", openapi_extra=schemas.body(json=schemas.Drop.model_json_schema()))
    async def drop(name: str, request: Request, key: Key = None, match: Match = None) -> schemas.Changed:
        """Remove a class: it is no longer predicted."""
        label = (await bodies.document(request, schemas.Drop)).label

        def action(model: ImageModel) -> Outcome:
            check_label(model, label)
            model.drop(label)
            return {"changed": f"dropped {label!r}"}

        return await change(name, key, match, json.dumps(["drop", label]), action)

    @router.post("/{name}/relabel", openapi_extra=schemas.image_body("labels", labels=schemas.LABELS))
    async def relabel(name: str, request: Request, key: Key = None, match: Match = None) -> schemas.Changed:
        """Move images that were learned under a wrong label to the right one."""
        model_path(folder, name)
        images, labels = await bodies.labelled_images(request)
        found, keys = await service.read(name, images), await asyncio.to_thread(content_keys, images)

        def action(model: ImageModel) -> Outcome:
            rows = [row for row, label in enumerate(labels) if label not in _learned(model, found, keys, row)]
            if not rows:
                raise Unchanged({"changed": "nothing: these images have these labels", "images": 0})
            wrong = [keys[row] for row in rows]
            moved = model.relabel_features(found.x[rows], np.array([labels[row] for row in rows]), wrong)
            return {"changed": model.history[0].change, "images": moved}

        try:
            return await change(name, key, match, digest_of("relabel", *labels, *images), action)
        except Unchanged as nothing:
            return schemas.Changed(**nothing.outcome)

    @router.post("/{name}/forget", openapi_extra=schemas.image_body())
    async def forget(name: str, request: Request, key: Key = None, match: Match = None) -> schemas.Changed:
        """Forget learned images, so that nothing in the model depends on them any more. This cannot be undone.

        What cannot forget goes with them: the compensation stream, earlier versions, and leave-one-out results.
        """
        model_path(folder, name)
        images, _ = await bodies.images(request)
        found, keys = await service.read(name, images), await asyncio.to_thread(content_keys, images)

        def action(model: ImageModel) -> Outcome:
            rows = [(row, label) for row in range(len(images)) for label in _learned(model, found, keys, row)]
            if len(rows) == sum(model.counts.values()):
                raise Refusal(409, "the model has learned no other images: delete it instead")
            at = [row for row, _ in rows]
            count = model.forget_features(found.x[at], np.array([label for _, label in rows]), [keys[i] for i in at])
            return {"changed": f"forgot {plural(count, 'image')}", "images": count}

        return await change(name, key, match, digest_of("forget", *images), action)

    @router.post("/{name}/undo")
    async def undo(name: str, key: Key = None, match: Match = None) -> schemas.Changed:
        """Undo the last change of the model; with If-Match, only if it is the change the client has seen."""
        return await change(name, key, match, "undo", lambda model: _keeping_notes(model, "undone", model.undo))

    @router.post("/{name}/redo")
    async def redo(name: str, key: Key = None, match: Match = None) -> schemas.Changed:
        """Make the change again that was undone last; with If-Match, only if nothing has changed since."""
        return await change(name, key, match, "redo", lambda model: _keeping_notes(model, "redone", model.redo))

    return router


def _learned(model: ImageModel, found: ReadImages, keys: list[bytes | None], row: int) -> tuple[str, ...]:
    """Return the labels under which an image was learned."""
    if model.backbone is not found.snapshot.extractor.backbone:
        raise Refusal(409, "the model was replaced in the meantime: send the change again")
    labels = model.seen.labels(keys[row])
    if not labels:
        raise Refusal(422, f"image {row + 1} was never learned")
    return labels


def _keeping_notes(model: ImageModel, verb: str, action: Callable[[], str]) -> Outcome:
    """Undo or redo, but keep the keys of changes: an undone lesson that is sent again must not be learned again."""
    notes = model.notes
    change = action()
    model.notes = notes
    return {"changed": f"{verb}: {change}"}
