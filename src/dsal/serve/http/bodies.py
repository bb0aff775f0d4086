"""Request bodies: counted and timed for every route, and parsed in memory, never on disk.

Nothing is built from a body before its size, and the number of values in its JSON, are known to be within limits.
Large bodies are parsed in one thread, so that the event loop goes on.
"""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

import anyio
from anyio.to_thread import run_sync
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from dsal.serve.engine.names import class_label
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import MEGABYTE, Settings

T = TypeVar("T")
Document = TypeVar("Document", bound=BaseModel)
_WITH_IMAGES = ("learn", "predict", "infer", "relabel", "forget", "suggest")
_MOST_TEXT = 4096  # bytes of a text in a form: a label
_WEIGHTS = {b",": 1, b"\\": 1, b"[": 10, b"{": 10, b":": 10}
"""Values that a sign in JSON counts for: a list, an object or a key takes ten times the time of a number."""
_AT_ONCE = 2**16  # bytes that are parsed, or written, in the event loop


class Bodies:
    """The limits of request bodies, and how many bytes of them are in memory."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.held, self.most = 0, min(settings.max_bodies, settings.memory // 4)
        self._parsing = anyio.CapacityLimiter(1)  # parsers hold Python's lock: two at a time would starve the loop

    def incoming(self, scope: Scope, receive: Receive) -> Incoming:
        """Return the body of a request; its limit is that of its route, and low for routes that need none."""
        settings, end = self.settings, scope["path"].rpartition("/")[2]
        if scope["method"] == "PUT" and end == "file":
            return Incoming(self, scope, receive, min(settings.max_upload, settings.memory // 3), kept=False)
        with_images = scope["method"] == "POST" and end in _WITH_IMAGES
        return Incoming(self, scope, receive, settings.max_body if with_images else settings.max_small, kept=True)

    async def read(self, request: Request) -> bytes:
        """Return the body of a request, which the request itself does not keep."""
        pieces = [piece async for piece in request.stream()]
        return await self.off_loop(sum(map(len, pieces)), b"".join, pieces)

    async def json(self, body: bytes) -> Any:
        """Parse a JSON body with a bounded number of values; NaN and infinities are not valid JSON."""
        return await self.off_loop(len(body), _from_json, body, self.settings.max_json_values)

    async def document(self, request: Request, kind: type[Document]) -> Document:
        """Return the JSON body of a request as ``kind``."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise Refusal(415, f"send the request as application/json, not {content_type[:80] or 'nothing'!r}")
        document = await self.json(await self.read(request))
        try:
            return kind.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = " ".join(str(part)[:80] for part in first["loc"]) or "the body"
            raise Refusal(422, f"{where}: {first['msg'][:200]}") from None

    async def form(self, request: Request) -> FormData:
        """Parse a form with at most ``max_images`` files."""
        most = self.settings.max_images
        parser = _Form(
            request.headers, _few_parts(request, 2 * most + 20),
            max_files=most, max_fields=most + 10, max_part_size=_MOST_TEXT,
        )  # fmt: skip
        try:
            form = await parser.parse()
        except MultiPartException as error:
            if error.message.startswith("Too many files"):
                raise Refusal(413, f"a request may contain at most {most} images") from error
            many = error.message.startswith(("Too many", "Part exceeded"))
            raise Refusal(413 if many else 400, f"the body is not a valid form: {error.message}") from error
        if not parser.ended:
            raise Refusal(400, "the body is not a valid form: it ends before its last boundary")
        return form

    async def images(self, request: Request, field: str = "labels") -> tuple[list[bytes], list[Any]]:
        """Return the image files of a multipart or JSON body, and the texts of another field."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        max_images = self.settings.max_images
        texts: list[Any]
        if kind == "multipart/form-data":
            form = await self.form(request)
            images, texts = form_files(form, "images"), list(form_texts(form, field))
            await form.close()
        elif kind == "application/json":
            body = await self.read(request)
            document = await self.json(body)
            if not isinstance(document, dict) or not isinstance(document.get("images"), list):
                raise Refusal(422, 'the body must be {"images": [base64, ...]}, and for a lesson "labels": [...]')
            given = document.get(field, [])
            texts = given if isinstance(given, list) else [given]
            if len(document["images"]) > max_images:
                raise Refusal(413, f"a request may contain at most {max_images} images, got {len(document['images'])}")
            images = await self.off_loop(len(body), lambda: [decode_base64(image) for image in document["images"]])
        else:
            raise Refusal(
                415, f"send images as multipart/form-data or application/json, not {kind[:80] or 'nothing'!r}"
            )
        if not images:
            raise Refusal(422, "the request has no images: send them as files in the field 'images'")
        return images, texts

    async def labelled_images(self, request: Request) -> tuple[list[bytes], list[str]]:
        """Return the image files of a body with a label for each."""
        images, labels = await self.images(request)
        if len(labels) not in (1, len(images)):
            raise Refusal(
                422, f"send one label for all images or one per image: {len(images)} images, {len(labels)} labels"
            )
        checked = [class_label(label) for label in labels]
        return images, checked * len(images) if len(checked) == 1 else checked

    async def off_loop(self, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, in a thread if it has more than a little to do."""
        if size <= _AT_ONCE:
            return function(*arguments)
        return await run_sync(function, *arguments, limiter=self._parsing)


class Incoming:
    """The body of one request, as ASGI's ``receive``: refused as soon as it is too large, too slow, or one too many."""

    def __init__(self, bodies: Bodies, scope: Scope, receive: Receive, limit: int, kept: bool) -> None:
        self._bodies, self._receive, self._limit, self._kept = bodies, receive, limit, kept
        self.size, self._complete = 0, False
        self._headers, self._declared = Headers(scope=scope), declared(scope)
        self._until = time.monotonic() + bodies.settings.timeout * max(1.0, self._declared / (64 * MEGABYTE))

    def check(self) -> None:
        """Raise Refusal if the headers announce a body that will not be read."""
        if self._headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "the body must not be compressed: send it without Content-Encoding")
        if self._declared > self._limit:
            raise self._too_large()

    async def __call__(self) -> Message:
        """Return the next piece of the body."""
        if self._complete:
            return await self._receive()
        try:
            with anyio.fail_after(max(self._until - time.monotonic(), 0)):
                message = await self._receive()
        except TimeoutError as error:
            raise Refusal(408, "the request did not arrive in time") from error
        if message["type"] == "http.disconnect":
            raise Refusal(408, "the client disconnected")
        size, self._complete = len(message.get("body", b"")), not message.get("more_body", False)
        self.size += size
        if self.size > self._limit:
            raise self._too_large()
        if self._kept:
            self._bodies.held += size
            if self._bodies.held > self._bodies.most:
                raise Refusal(503, "the server is receiving too much data at once: try again", retry_after=2)
        return message

    def release(self) -> None:
        """The request is answered: nothing of its body is in memory."""
        if self._kept:
            self._bodies.held -= self.size

    def _too_large(self) -> Refusal:
        limit = f"{self._limit // MEGABYTE} MB" if self._limit >= MEGABYTE else f"{self._limit // 1024} kB"
        return Refusal(413, f"the body is larger than {limit}: send less at a time")


async def _few_parts(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a form; the parser would take 20 ms for a piece that is full of almost boundaries."""
    _, options = parse_options_header(request.headers["content-type"])
    boundary, found = b"\r\n--" + options.get(b"boundary", b""), 0
    async for piece in request.stream():
        found += piece.count(boundary)
        if found > most:
            raise Refusal(413, f"a form may have at most {most} parts")
        yield piece


class _Form(MultiPartParser):
    spool_max_size = 0  # files stay in memory
    ended = False

    def on_end(self) -> None:
        self.ended = True


def declared(scope: Scope) -> int:
    """Return the Content-Length of a request; 0 if it has none."""
    header = Headers(scope=scope).get("content-length", "")
    if not (header.isascii() and header.isdigit()):
        return 0
    return int(header) if len(header) < 20 else 2**62


def form_files(form: FormData, name: str) -> list[bytes]:
    """Return the files of a field of a form."""
    files = [value.file.read() for value in form.getlist(name) if isinstance(value, UploadFile)]
    if len(files) != len(form.getlist(name)):
        raise Refusal(422, f"the field {name!r} must hold files")
    return files


def form_texts(form: FormData, name: str) -> list[str]:
    """Return the texts of a field of a form."""
    texts = [value for value in form.getlist(name) if isinstance(value, str)]
    if len(texts) != len(form.getlist(name)):
        raise Refusal(422, f"the field {name!r} must hold text")
    return texts


def decode_base64(text: object) -> bytes:
    """Decode base64 text from JSON, with or without the prefix of a data URL."""
    if not isinstance(text, str):
        raise Refusal(422, f"an image in JSON must be base64 text, got {type(text).__name__}")
    start = text.find(",") + 1 if text.startswith("data:") else 0
    pieces = []
    try:
        if text.find("=", start, -2) >= 0:
            raise ValueError("text goes on after its end")
        for at in range(start, len(text), MEGABYTE):  # between two pieces other threads can run
            pieces.append(base64.b64decode(text[at : at + MEGABYTE], validate=True))
    except ValueError as error:
        raise Refusal(422, f"an image in JSON must be base64: {error}") from error
    return b"".join(pieces)


def _from_json(body: bytes, most: int) -> Any:
    """Parse JSON; before that, count its values, with those in texts, a piece at a time as :func:`decode_base64`."""
    values = 0
    for start in range(0, len(body), MEGABYTE):
        for sign, weight in _WEIGHTS.items():
            values += weight * body.count(sign, start, start + MEGABYTE)
        if values > most:
            raise Refusal(413, f"a JSON body may have at most {most} values: send images as files or raw bytes")
    try:
        return from_json(body, allow_inf_nan=False, cache_strings=False)
    except ValueError as error:
        raise Refusal(400, f"the body is not valid JSON: {str(error)[:200]}") from None
