"""Request bodies: read within limits of size and time, and parsed in memory, never on disk."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from dsal.serve.http.deadline import deadline
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import MEGABYTE, Settings


@dataclass
class Form:
    """Fields of a form, each with its values in order: text as str, files as bytes."""

    fields: dict[str, list[str | bytes]] = field(default_factory=dict)

    def files(self, name: str) -> list[bytes]:
        """Return the files of a field."""
        values = self.fields.get(name, [])
        if not all(isinstance(value, bytes) for value in values):
            raise Refusal(422, f"the field {name!r} must hold files")
        return [value for value in values if isinstance(value, bytes)]

    def texts(self, name: str) -> list[str]:
        """Return the texts of a field."""
        values = self.fields.get(name, [])
        if not all(isinstance(value, str) for value in values):
            raise Refusal(422, f"the field {name!r} must hold text")
        return [value for value in values if isinstance(value, str)]


class Bodies:
    """Reads request bodies, and counts how many bytes of them are in memory."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read the body, which counts as held until the block ends."""
        pieces: list[bytes] = []
        size = 0
        try:
            async with self.deadline(request):
                async for piece in limited(request, self.settings.max_body):
                    size += len(piece)
                    self.held += len(piece)
                    if self.held > self.settings.max_bodies:
                        raise Refusal(503, "the server is receiving too much data at once: try again", retry_after=2)
                    pieces.append(piece)
            body = b"".join(pieces)
            pieces.clear()
            yield body
        finally:
            self.held -= size

    def deadline(self, request: Request) -> deadline:
        """Return the deadline for a body to arrive, which is longer for large bodies."""
        seconds = self.settings.timeout * max(1.0, declared(request) / (64 * MEGABYTE))
        return deadline(seconds, Refusal(408, "the request did not arrive in time"))


def declared(request: Request) -> int:
    """Return the Content-Length of a request; 0 if it has none."""
    header = request.headers.get("content-length", "")
    return int(header) if header.isascii() and header.isdigit() else 0


async def limited(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield pieces of a body of at most ``limit`` bytes."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "the body must not be compressed: send it without Content-Encoding")
    if declared(request) > limit:
        raise _too_large(limit)
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refusal(408, "the client disconnected")
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        yield piece


def parse_json(body: bytes) -> Any:
    """Parse a JSON body; NaN and infinities are refused, because they are not valid JSON."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is not valid JSON: {str(error)[:200]}") from error


def parse_form(content_type: str, body: bytes, most_parts: int) -> Form:
    """Parse a multipart body with at most ``most_parts`` parts."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise Refusal(400, "the Content-Type of a form must have a boundary")
    form, part = Form(), _Part()

    def header(data: bytes, start: int, end: int) -> None:
        part.header += data[start:end]

    def value(data: bytes, start: int, end: int) -> None:
        part.value += data[start:end]

    def header_end() -> None:
        part.headers[bytes(part.header).lower()] = bytes(part.value)
        part.header.clear()
        part.value.clear()

    def content(data: bytes, start: int, end: int) -> None:
        part.content += data[start:end]

    def begin() -> None:
        part.clear()

    def finish() -> None:
        part.number += 1
        if part.number > most_parts:
            raise Refusal(413, f"the form has more than {most_parts} parts")
        part.add_to(form)

    callbacks = {
        "on_part_begin": begin,
        "on_header_field": header,
        "on_header_value": value,
        "on_header_end": header_end,
        "on_part_data": content,
        "on_part_end": finish,
    }
    try:
        parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise Refusal(400, f"the body is not a valid form: {str(error)[:200]}") from error
    if not part.number:
        raise Refusal(400, "the form is empty")
    return form


def decode_base64(text: object) -> bytes:
    """Decode base64 text from JSON, with or without the prefix of a data URL."""
    if not isinstance(text, str):
        raise Refusal(422, f"an image in JSON must be base64 text, got {type(text).__name__}")
    try:
        return base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal(422, f"an image in JSON must be base64: {error}") from error


@dataclass
class _Part:
    """The part of a form that is being read."""

    header: bytearray = field(default_factory=bytearray)
    value: bytearray = field(default_factory=bytearray)
    headers: dict[bytes, bytes] = field(default_factory=dict)
    content: bytearray = field(default_factory=bytearray)
    number: int = 0

    def clear(self) -> None:
        self.header, self.value, self.headers, self.content = bytearray(), bytearray(), {}, bytearray()

    def add_to(self, form: Form) -> None:
        _, options = parse_options_header(self.headers.get(b"content-disposition", b""))
        try:
            name = options.get(b"name", b"").decode()
            is_file = b"filename" in options
            value = bytes(self.content) if is_file else self.content.decode()
        except UnicodeDecodeError as error:
            raise Refusal(400, "names and text of a form must be UTF-8") from error
        form.fields.setdefault(name, []).append(value)


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"the body is larger than {limit // MEGABYTE} MB: send fewer or smaller images")
