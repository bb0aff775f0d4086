"""``/v2``: the Open Inference Protocol; tensors as JSON, or as raw bytes after the JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray

from dsal.base import __version__
from dsal.serve.engine.names import model_path
from dsal.serve.engine.service import ScoredImages, Service
from dsal.serve.engine.snapshots import Snapshot
from dsal.serve.http import schemas
from dsal.serve.http.bodies import Bodies
from dsal.serve.http_errors import Refusal

_LENGTH = "Inference-Header-Content-Length"
_MOST_ID = 1000  # characters of a request's own id that are sent back
_OUTPUTS = ("label", "probabilities", "novelty", "logits")
_INTEGERS = {"type": "array", "items": {"type": "integer"}}
_TENSOR = schemas.fields(name={"const": "images"}, datatype={"const": "UINT8"}, shape=_INTEGERS)
_TENSOR["properties"]["data"] = _INTEGERS  # or raw bytes after the JSON
_INFERENCE = schemas.fields(inputs={"type": "array", "minItems": 1, "maxItems": 1, "items": _TENSOR})
_INFERENCE["properties"] |= {
    "id": {"type": "string"},
    "outputs": {"type": "array", "items": {"type": "object", "properties": {"name": {"enum": list(_OUTPUTS)}}}},
}


def inference_routes(service: Service, bodies: Bodies) -> APIRouter:
    """Return the routes under ``/v2``."""
    router = APIRouter(prefix="/v2", responses=schemas.FAILURES)
    library = service.library

    @router.post("/models/{name}/infer", openapi_extra=schemas.body(json=_INFERENCE))
    async def infer(name: str, request: Request) -> Response:
        """Score decoded images: input ``images``, UINT8 (n, c, size, size), cropped and resized."""
        model_path(library.folder, name)
        head, rest = _parts(request, await bodies.read(request))
        document = await bodies.json(head)
        if not isinstance(document, dict):
            raise Refusal(422, 'the body must be {"inputs": [...]}')
        snapshot = await service.snapshot(name)
        images = await bodies.off_loop(len(head), _images, document, rest, snapshot, service.settings.max_images)
        wanted, own = _wanted(document), {"model_name": name, "model_version": "1"}
        if isinstance(document.get("id"), str):
            own["id"] = document["id"][:_MOST_ID]
        found = await service.scores(snapshot, images)
        return await bodies.off_loop(found.scores.logits.size * 16, _answer, own, found, wanted)

    @router.get("/health/live")
    async def live() -> dict[str, bool]:
        """Report that the server is running."""
        return {"live": True}

    @router.get("/health/ready")
    async def ready() -> dict[str, bool]:
        """Check that the server can learn: it is not stopping, the writer moves on, the model folder can be written."""
        await service.ready()
        return {"ready": True}

    @router.get("")
    async def server() -> dict[str, Any]:
        """Return the name, version and extensions of the server."""
        return {"name": "dsal", "version": __version__, "extensions": ["binary_tensor_data"]}

    @router.get("/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        """Return the inputs, outputs and labels of a model."""
        snapshot = await service.snapshot(name)
        size, classes = snapshot.facts["image_size"], len(snapshot.classes)
        return {
            "name": name,
            "versions": ["1"],
            "platform": "dsal",
            "inputs": [{"name": "images", "datatype": "UINT8", "shape": [-1, snapshot.facts["channels"], size, size]}],
            "outputs": [
                {"name": "label", "datatype": "BYTES", "shape": [-1]},
                {"name": "probabilities", "datatype": "FP32", "shape": [-1, classes]},
                {"name": "novelty", "datatype": "FP32", "shape": [-1]},
                {"name": "logits", "datatype": "FP32", "shape": [-1, classes]},
            ],
            "parameters": {"labels": snapshot.classes},
        }

    @router.get("/models/{name}/ready")
    async def model_ready(name: str) -> dict[str, Any]:
        """Check that the model can answer."""
        await service.snapshot(name)
        return {"name": name, "ready": True}

    return router


def _parts(request: Request, body: bytes) -> tuple[bytes, memoryview]:
    """Split a body into its JSON and the raw bytes after it."""
    length = request.headers.get(_LENGTH)
    if length is None:
        return body, memoryview(b"")
    if length.isascii() and length.isdigit() and len(length) < 20 and int(length) <= len(body):
        return body[: int(length)], memoryview(body)[int(length) :]
    raise Refusal(400, f"{_LENGTH} must be the length of the JSON in bytes, got {length[:40]!r}")


def _images(document: dict[str, Any], rest: memoryview, snapshot: Snapshot, max_images: int) -> NDArray[np.uint8]:
    """Return the tensor ``images`` (n, c, size, size)."""
    inputs = document.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise Refusal(422, "inputs must be a list of one tensor, 'images'")
    (given,) = inputs
    inner = [snapshot.facts["channels"], snapshot.facts["image_size"], snapshot.facts["image_size"]]
    shape = given.get("shape")
    if given.get("name") != "images" or given.get("datatype") != "UINT8":
        raise Refusal(422, "the input must have the name 'images' and the datatype UINT8")
    if not isinstance(shape, list) or not all(type(n) is int for n in shape) or shape[1:] != inner or shape[0] < 1:
        raise Refusal(
            422, f"the shape of 'images' must be [n, {inner[0]}, {inner[1]}, {inner[2]}], got {ascii(shape)[:80]}"
        )
    if shape[0] > max_images:
        raise Refusal(413, f"a request may contain at most {max_images} images, got {shape[0]}")
    numbers = shape[0] * math.prod(inner)
    parameters = given.get("parameters")
    if isinstance(parameters, dict) and "binary_data_size" in parameters:
        if parameters["binary_data_size"] != numbers or len(rest) != numbers:
            raise Refusal(422, f"'images' needs {numbers} bytes after the JSON, got {len(rest)}")
        return np.frombuffer(rest, np.uint8).reshape(shape)
    data = given.get("data")
    try:
        if not isinstance(data, list) or len(data) != numbers:
            raise ValueError
        return np.frombuffer(bytearray(data), np.uint8).reshape(shape)
    except (ValueError, TypeError) as error:
        raise Refusal(
            422, f"the data of 'images' must be a flat list of {numbers} integers from 0 to 255, or raw bytes"
        ) from error


def _wanted(document: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the names of the requested outputs, each with whether it is sent as raw bytes."""
    parameters = document.get("parameters")
    binary = isinstance(parameters, dict) and parameters.get("binary_data_output") is True
    outputs = document.get("outputs")
    if outputs is None:
        return [(name, binary) for name in _OUTPUTS]
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise Refusal(422, "outputs must be a list of objects with a name")
    if len(outputs) > len(_OUTPUTS):
        raise Refusal(422, f"a model has {len(_OUTPUTS)} outputs, got {len(outputs)} names")
    wanted = []
    for output in outputs:
        if output.get("name") not in _OUTPUTS:
            raise Refusal(422, f"unknown output {str(output.get('name'))[:80]!r}; choose from {', '.join(_OUTPUTS)}")
        own = output.get("parameters")
        wanted.append((output["name"], own.get("binary_data") is True if isinstance(own, dict) else binary))
    return wanted


def _answer(head: dict[str, Any], found: ScoredImages, wanted: list[tuple[str, bool]]) -> Response:
    scores, classes = found.scores, found.predictor.classes
    values: dict[str, Any] = {
        "label": [classes[column] for column in scores.logits.argmax(1)],
        "probabilities": scores.probabilities.astype(np.float32),
        "novelty": scores.novelty.astype(np.float32),
        "logits": scores.logits,
    }
    outputs, raw = list[str](), list[bytes]()
    for name, binary in wanted:
        value = values[name]
        output: dict[str, Any] = {
            "name": name,
            "datatype": "BYTES" if name == "label" else "FP32",
            "shape": [len(value)] if name == "label" else list(value.shape),
        }
        if binary:
            data = b"".join(map(_length_prefixed, value)) if name == "label" else value.astype("<f4").tobytes()
            output["parameters"] = {"binary_data_size": len(data)}
            raw.append(data)
            outputs.append(json.dumps(output))
        else:
            rows = [value] if name == "label" else value.reshape(len(value), -1)
            outputs.append(f'{json.dumps(output)[:-1]}, "data": [{", ".join(map(_numbers, rows))}]}}')
    text = f'{json.dumps(head)[:-1]}, "outputs": [{", ".join(outputs)}]}}'.encode()
    if not raw:
        return Response(text, media_type="application/json")
    media_type = "application/octet-stream"
    return Response(b"".join((text, *raw)), media_type=media_type, headers={_LENGTH: str(len(text))})


def _numbers(row: Any) -> str:
    """Return the values of a row as JSON, without brackets; NaN as null. Other threads can run between two rows."""
    values = row if isinstance(row, list) else row.tolist()
    return json.dumps([None if value != value else value for value in values])[1:-1]


def _length_prefixed(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "little") + data
