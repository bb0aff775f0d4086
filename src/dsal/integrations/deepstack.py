"""DeepStack and CodeProject.AI: ``POST /v1/vision/custom/NAME``, which cameras and home automation speak.

The form field ``image`` is passed on to the server's own ``/api/models/NAME/predict``, and the field ``api_key`` as its
token: every check and limit there applies.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import secrets
import time
from typing import Any

from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsal.serve.http.bodies import Bodies, form_files, form_texts
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import Settings

_PATH = re.compile(r"/v1/vision/custom/([^/]{1,200})")
_AT_ONCE = 4  # bodies read before their key is known


class DeepStack:
    """ASGI middleware in front of the server; other paths are passed on unchanged."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self._bodies, self._gate = app, Bodies(settings), asyncio.Semaphore(_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on."""
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if match is None:
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        try:
            async with self._gate:
                image, key, least = await self._read(scope, receive)
            status, answer = await self._predict(scope, match[1], image, key)
        except Refusal as refusal:
            status, answer = refusal.status, {"error": str(refusal)}
        if status == 200:
            answer = {"success": True, "predictions": _boxes(answer["predictions"][0], image, least), "code": 200}
        else:
            answer = {"success": False, "error": answer.get("error", "failed"), "code": status}
        answer["duration"] = round(1000 * (time.monotonic() - started))
        await JSONResponse(answer, status)(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> tuple[bytes, str, float]:
        """Return the image, the key and the least confidence of a form."""
        body = self._bodies.incoming({**scope, "path": "/predict"}, receive)  # with the limit of images
        try:
            body.check()
            form = await self._bodies.form(Request(scope, body))
            images = form_files(form, "image") or form_files(form, "image1")
            texts = {name: form_texts(form, name) for name in ("api_key", "min_confidence")}
            await form.close()
        finally:
            body.release()
        if len(images) != 1:
            raise Refusal(400, "send one image, as a file in the field 'image'")
        try:
            return images[0], "".join(texts["api_key"][:1]), float("".join(texts["min_confidence"][:1]) or 0)
        except ValueError:
            raise Refusal(400, "min_confidence must be a number") from None

    async def _predict(self, scope: Scope, name: str, image: bytes, key: str) -> tuple[int, dict[str, Any]]:
        """Return status and answer of the server's own prediction."""
        boundary = secrets.token_hex(16).encode()
        head = b'--%s\r\nContent-Disposition: form-data; name="images"; filename="image"\r\n\r\n' % boundary
        body = head + image + b"\r\n--%s--\r\n" % boundary
        kept = [(n, v) for n, v in scope["headers"] if n in (b"host", b"origin", b"sec-fetch-site", b"authorization")]
        headers = [
            *(header for header in kept if not key or header[0] != b"authorization"),
            (b"content-type", b"multipart/form-data; boundary=" + boundary),
            (b"content-length", b"%d" % len(body)),
        ]
        if key:
            headers.append((b"authorization", b"Bearer " + key.encode("ascii", "replace")))
        path = f"/api/models/{name}/predict"
        inner = {**scope, "path": path, "raw_path": path.encode(), "query_string": b"top_k=1", "headers": headers}
        sent, status, answer = False, 500, bytearray()

        async def receive() -> Message:
            nonlocal sent
            if sent:
                await asyncio.sleep(3600)  # the client is still there
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                answer.extend(message.get("body", b""))

        await self.app(inner, receive, send)
        return status, json.loads(answer)


def _boxes(prediction: dict[str, Any], image: bytes, least: float) -> list[dict[str, Any]]:
    """Return the prediction as one box around the whole image; none if it is novel or not certain enough."""
    if prediction["novel"] or prediction["score"] < least:
        return []
    with Image.open(io.BytesIO(image)) as opened:  # the server has read it; only its header is read here
        width, height = opened.size
    box = {"x_min": 0, "y_min": 0, "x_max": width, "y_max": height}
    return [{"label": prediction["label"], "confidence": prediction["score"], **box}]
