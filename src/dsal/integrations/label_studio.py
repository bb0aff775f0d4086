"""Label Studio: the protocol of ML backends for image classification, under ``/label-studio/NAME``.

Predictions become pre-annotations. Every annotation is a lesson: learned once, moved to another class when it is
changed, forgotten when it is deleted. The model keeps the address and label of each annotated task, never an image; to
follow a change, the image is fetched again. What was missed while the server was down is made up for by *Start
training*.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from fastapi import APIRouter, Request

from dsal.image_model import ImageModel
from dsal.integrations.label_studio_client import LabelStudio
from dsal.serve.engine.library import Outcome
from dsal.serve.engine.names import class_label, model_path
from dsal.serve.engine.service import ScoredImages, Service
from dsal.serve.http.bodies import Bodies
from dsal.serve.http_errors import Refusal, Unchanged

NOTE = "label_studio"  # name of the note: {task: {"url": ..., "labels": {annotation: label}}}
_AT_ONCE = 8  # images fetched at a time


@dataclass(frozen=True)
class Config:
    """The names in a labelling configuration: the control, the object, the key of the image, and the choices."""

    choices: str
    image: str
    key: str
    labels: frozenset[str]

    @classmethod
    def parse(cls, xml: object) -> Config:
        """Read ``<Choices name= toName=>`` and ``<Image name= value=>``.

        >>> image = '<Image name="i" value="$img"/>'
        >>> choices = '<Choices name="c" toName="i"><Choice value="a"/></Choices>'
        >>> Config.parse(f"<View>{image}{choices}</View>")
        Config(choices='c', image='i', key='img', labels=frozenset({'a'}))
        """
        if not isinstance(xml, str) or len(xml) > 2**16 or "<!" in xml.replace("<!--", ""):
            raise Refusal(422, "the labelling configuration is missing, too long, or declares entities")
        try:
            root = ElementTree.fromstring(xml)
        except ElementTree.ParseError as error:
            raise Refusal(422, f"the labelling configuration is not XML: {error}") from None
        choices = root.find(".//Choices")
        shown = None if choices is None else choices.get("toName")
        image = next((tag for tag in root.iter("Image") if tag.get("name") == shown), None)
        if choices is None or image is None:
            raise Refusal(422, "the labelling configuration needs an Image, and Choices whose toName is its name")
        labels = frozenset(tag.get("alias") or tag.get("value") or "" for tag in choices.iter("Choice"))
        return cls(choices.get("name", ""), image.get("name", ""), image.get("value", "").lstrip("$"), labels)


def label_studio_routes(address: str, key: str | None) -> Callable[[Service, Bodies], APIRouter]:
    """Return what makes the routes of an ML backend for the Label Studio at ``address``, with its API ``key``."""
    return lambda service, bodies: _routes(service, bodies, LabelStudio(address, key, service.settings.max_body))


def _routes(service: Service, bodies: Bodies, studio: LabelStudio) -> APIRouter:
    router, backend = APIRouter(prefix="/label-studio/{name}", include_in_schema=False), _Backend(service, studio)

    async def read(request: Request) -> dict[str, Any]:
        document = await bodies.json(await bodies.read(request))
        if not isinstance(document, dict):
            raise Refusal(422, "the body must be a JSON object")
        return document

    @router.get("/health")
    async def health(name: str) -> dict[str, str]:
        return {"status": "UP", "model_class": "dsal"}

    @router.post("/setup")
    async def setup(name: str, request: Request) -> dict[str, str]:
        model_path(service.library.folder, name)
        Config.parse((await read(request)).get("schema"))
        return {"model_version": await backend.version(name)}

    @router.get("/versions")
    async def versions(name: str) -> dict[str, Any]:
        return {"versions": [await backend.version(name)]}

    @router.post("/predict")
    async def predict(name: str, request: Request) -> dict[str, Any]:
        document = await read(request)
        tasks = document.get("tasks")
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise Refusal(422, "tasks must be a list of objects")
        config = Config.parse(document.get("label_config"))
        return {"results": await backend.predictions(name, config, tasks)}

    @router.post("/webhook")
    async def webhook(name: str, request: Request) -> dict[str, Any]:
        event = await read(request)
        return {"changed": await backend.follow(name, event)}

    @router.post("/train")
    async def train(name: str, request: Request) -> dict[str, Any]:
        number = re.match(r"\d+", str((await read(request)).get("project", "")))
        if number is None:
            raise Refusal(422, "project must be the number of a project")
        return {"changed": await backend.catch_up(name, int(number[0]))}

    return router


class _Backend:
    """What the routes do, in terms of the service's own operations."""

    def __init__(self, service: Service, studio: LabelStudio) -> None:
        self.service, self.studio = service, studio
        self._turn = asyncio.Lock()  # events of one annotation must be followed in their order

    async def version(self, name: str) -> str:
        if not model_path(self.service.library.folder, name).exists():
            return "untaught"
        facts = (await self.service.snapshot(name)).facts
        return f"{facts['images']} images, {len(facts['classes'])} classes"

    async def predictions(self, name: str, config: Config, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a prediction per task, empty before two classes are known or if its image cannot be read."""
        empty: dict[str, Any] = {"result": [], "score": 0.0}
        path = model_path(self.service.library.folder, name)
        if not tasks or not path.exists() or len((await self.service.snapshot(name)).classes) < 2:
            return [empty for _ in tasks]
        gate = asyncio.Semaphore(_AT_ONCE)

        async def fetch(task: dict[str, Any]) -> bytes:
            async with gate:
                try:
                    return await self.studio.image(_url(task, config.key))
                except Refusal:
                    return b""

        images = await asyncio.gather(*map(fetch, tasks))
        found = await self.service.scores(await self.service.snapshot(name), images, skip_broken=True)
        results, version = [empty for _ in tasks], await self.version(name)
        for row, label, score, sure in _best(found, config.labels):
            value = {"from_name": config.choices, "to_name": config.image, "type": "choices", "score": score}
            chosen = {**value, "value": {"choices": [label]}}
            results[row] = {"result": [chosen], "score": sure, "model_version": version}
        return results

    async def follow(self, name: str, event: dict[str, Any]) -> int:
        """Learn, relabel or forget as an event says; return the number of changes."""
        action, project = event.get("action"), event.get("project")
        if action == "START_TRAINING" and isinstance(project, dict) and isinstance(project.get("id"), int):
            return await self.catch_up(name, project["id"])
        if action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"):
            task, annotation = event.get("task"), event.get("annotation")
            if not (isinstance(task, dict) and isinstance(annotation, dict) and isinstance(project, dict)):
                raise Refusal(422, f"{action} must carry a task, an annotation and a project")
            config = Config.parse(project.get("label_config"))
            async with self._turn:
                entries = await self._entries(name)
                old = entries.get(str(task.get("id")), {"labels": {}})
                labels = {**old["labels"], **_labels([annotation], config)}
                return await self._set(name, str(task.get("id")), _url(task, config.key), labels)
        if action == "ANNOTATIONS_DELETED":
            gone = {str(each.get("id")) for each in event.get("annotations") or [] if isinstance(each, dict)}
            changed = 0
            async with self._turn:
                for task_id, entry in (await self._entries(name)).items():
                    left = {number: label for number, label in entry["labels"].items() if number not in gone}
                    if left != entry["labels"]:
                        changed += await self._set(name, task_id, entry["url"], left)
            return changed
        return 0  # other events do not concern the model

    async def catch_up(self, name: str, project: int) -> int:
        """Make the model follow all annotations of a project, whatever was missed; return the number of changes."""
        config = Config.parse((await self.studio.get(f"/api/projects/{project}"))["label_config"])
        tasks = await self.studio.tasks(project)
        async with self._turn:
            changed, known = 0, await self._entries(name)
            for task in tasks:
                labels = _labels(task.get("annotations") or [], config)
                if labels or str(task["id"]) in known:
                    changed += await self._set(name, str(task["id"]), _url(task, config.key), labels)
            for task_id in known.keys() - {str(task["id"]) for task in tasks}:
                changed += await self._set(name, task_id, known[task_id]["url"], {})
        return changed

    async def _entries(self, name: str) -> dict[str, Any]:
        """Return the tasks that the model has learned."""
        if not model_path(self.service.library.folder, name).exists():
            return {}
        noted = (await self.service.snapshot(name)).notes.get(NOTE)
        return noted if isinstance(noted, dict) else {}

    async def _set(self, name: str, task: str, url: str, labels: dict[str, str]) -> int:
        """Make the labels of a task what they are in Label Studio; the newest annotation counts."""
        old = (await self._entries(name)).get(task, {"labels": {}})["labels"]
        if old == labels:
            return 0
        if url.startswith("data:"):
            raise Refusal(422, "the model would have to keep an image that is inside its task: import images as files")
        before, after = _newest(old), _newest(labels)
        image = b"" if before == after else await self.studio.image(url)

        def action(model: ImageModel) -> Outcome:
            notes = {number: entry for number, entry in model.notes.get(NOTE, {}).items() if number != task}
            if before is None and after is not None:
                model.learn(([image], [after]))
            elif before is not None and after is None:
                if sum(model.counts.values()) == 1:
                    raise Unchanged({"last": True})
                model.forget(([image], [before]))
            elif before != after:
                model.relabel([image], after)
            entry = {task: {"url": url, "labels": labels}} if labels else {}
            model.notes[NOTE] = notes | entry  # forgetting clears all notes; those of other tasks are still true
            return {"changed": f"task {task}: {before} -> {after}"}

        what = json.dumps([task, url, labels], sort_keys=True)
        try:
            await self.service.change(name, None, what, action, create=before is None)
        except Unchanged:  # nothing is left: a model without images is no model
            await self.service.writer.run(self.service.library.remove, name)
        return 1


def _url(task: dict[str, Any], key: str) -> str:
    data = task.get("data")
    url = data.get(key) if isinstance(data, dict) else None
    if not isinstance(url, str):
        raise Refusal(422, f"the task has no image at {key!r}")
    return url


def _labels(annotations: list[Any], config: Config) -> dict[str, str]:
    """Return the chosen label by the number of its annotation; skipped and empty ones are left out."""
    found = {}
    for annotation in annotations:
        for region in annotation.get("result") or []:
            chosen = region.get("value", {}).get("choices") if region.get("from_name") == config.choices else None
            if chosen and not annotation.get("was_cancelled"):
                found[str(annotation["id"])] = class_label(chosen[0])
    return found


def _newest(labels: dict[str, str]) -> str | None:
    return labels[max(labels, key=int)] if labels else None


def _best(found: ScoredImages, allowed: frozenset[str]) -> list[tuple[int, str, float, float]]:
    """Return row, label, probability and certainty of each readable image; a novel image is not certain."""
    classes, answers = found.predictor.classes, []
    columns = [i for i, label in enumerate(classes) if not allowed or label in allowed]
    for number, row in enumerate(found.rows):
        chances, novelty = found.scores.probabilities[number], float(found.scores.novelty[number])
        if columns:
            best = max(columns, key=lambda column, chances=chances: float(chances[column]))  # type: ignore[misc]
            score = float(chances[best])
            sure = score if novelty != novelty else min(score, 1 - novelty)
            answers.append((row, str(classes[best]), score, sure))
    return answers
