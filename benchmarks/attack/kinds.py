"""Hostile requests: the kinds that once worked, and strange ones made from the routes of the server."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks.attack.served import encoded, photograph
from PIL import Image

MEGABYTE = 2**20
_WORDS = (
    "", "x", "cups", "..", "%2e%2e", "%00", "a" * 300, "\u00e9", "CON", "cups/file", "\u202etxt", "<b>", "null", "-1",
    "1e308", "true", "{}", "[]", "NaN", "' OR 1=1", "${7*7}", "/etc/passwd",
)  # fmt: skip
_ROUTES = (
    *("/api/models", "/api/models/{}", "/api/models/{}/lessons/{}", "/v2/models/{}", "/page/{}", "/{}"),
    *(f"/api/models/{{}}/{end}" for end in ["predict", "learn", "rename", "drop", "undo", "info", "file", "version"]),
    *("/v2/models/{}/infer", "/v2/models/{}/ready"),
)
_TYPES = ("application/json", "multipart/form-data; boundary=B", "multipart/form-data", "text/plain", "", "\x80")


class Attacker:
    """One hostile client.

    Args:
        address: host and port of the server.
        seed: seed of what it sends.
        model: a model file, to be damaged and uploaded.
    """

    def __init__(self, address: tuple[str, int], seed: int, model: bytes) -> None:
        self.address, self.random, self.model = address, random.Random(seed), model
        self.held: list[socket.socket] = []  # connections that are never read
        self.kinds: dict[Callable[[], bytes], float] = {
            self.strings_as_numbers: 4, self.empty_lists: 2, self.many_outputs: 3, self.large_names: 3, self.trickle: 2,
            self.deep: 4, self.bombs: 8, self.broken_pictures: 8, self.other_formats: 5, self.huge_picture: 2,
            self.damaged_model: 6, self.uploads_and_uses: 1, self.disconnects: 6, self.never_reads: 4, self.headers: 8,
            self.not_http: 4, self.leaves: 4, self.strange: 26,
        }  # fmt: skip

    def step(self) -> tuple[str, int]:
        """Send a request of a random kind; return the kind and the status, 0 if the server closed the connection."""
        (kind,) = self.random.choices(list(self.kinds), list(self.kinds.values()))
        try:
            answer = kind()
        except OSError:
            answer = b""
        status = answer[9:12]
        return kind.__name__, int(status) if answer.startswith(b"HTTP/1.1 ") and status.isdigit() else 0

    def ask(self, method: str, path: str, body: bytes = b"", read: bool = True, **headers: str) -> bytes:
        """Send a request and return the beginning of the answer."""
        lines = [f"{method} {path} HTTP/1.1", f"Content-Length: {len(body)}", "Connection: close"]
        named = {"Host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines += [f"{name}: {value}" for name, value in named.items()]
        connection = socket.create_connection(self.address, timeout=120)
        try:
            connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
            self._send(connection, body)
            if not read:
                self.held = [*self.held[-20:], connection]
                return b"HTTP/1.1 000"
            return connection.recv(4096)
        finally:
            if read:
                connection.close()

    def _send(self, connection: socket.socket, body: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read; the answer may be there
            connection.sendall(body)

    def json(self, path: str, body: bytes, **headers: str) -> bytes:
        return self.ask("POST", path, body, Content_Type="application/json", **headers)

    def form(self, path: str, *parts: bytes, end: bytes = b"--B--\r\n") -> bytes:
        head = b'--B\r\nContent-Disposition: form-data; name="images"; filename="x"\r\n\r\n'
        body = b"".join(head + part + b"\r\n" for part in parts) + end
        return self.ask("POST", path, body, Content_Type="multipart/form-data; boundary=B")

    def strings_as_numbers(self) -> bytes:
        data = ["x" * 1000] + [""] * 500_000
        tensor = {"name": "images", "datatype": "UINT8", "shape": [1, 3, 224, 224], "data": data}
        return self.json("/v2/models/cups/infer", json.dumps({"inputs": [tensor]}).encode())

    def empty_lists(self) -> bytes:
        end = self.random.choice(("predict", "learn", "rename", "drop"))
        return self.json(f"/api/models/cups/{end}", b"[" + b"[]," * (20 * MEGABYTE) + b"[]]")

    def many_outputs(self) -> bytes:
        return self.json(
            "/v2/models/cups/infer", json.dumps({"inputs": [], "outputs": [{"name": "logits"}] * 20_000}).encode()
        )

    def large_names(self) -> bytes:
        name = b"x" * self.random.choice((70_000, 30 * MEGABYTE))
        return self.json("/api/models/cups/rename", b'{"old": "%s", "new": "y"}' % name)

    def trickle(self) -> bytes:
        with socket.create_connection(self.address, timeout=120) as connection:
            connection.sendall(
                b"POST /api/models/cups/drop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1000\r\n\r\n"
            )
            for _ in range(8):
                connection.sendall(b"[")
                time.sleep(0.25)
        return b""

    def deep(self) -> bytes:
        bracket = self.random.choice((b"[", b'{"a":'))
        return self.json("/api/models/cups/predict", bracket * self.random.choice((300, 50_000)))

    def bombs(self) -> bytes:
        """A picture that declares far more than it holds, or holds far more than its size suggests."""
        return self.form(
            "/api/models/cups/predict", self.random.choice((_png(30_000, 30_000), _png(7000, 7000), _ico()))
        )

    def broken_pictures(self) -> bytes:
        picture = bytearray(photograph(self.random.randrange(50)))
        for _ in range(self.random.randrange(1, 20)):
            picture[self.random.randrange(len(picture))] = self.random.randrange(256)
        end = self.random.randrange(1, len(picture))
        return self.form("/api/models/cups/predict?skip_broken=true", bytes(picture), bytes(picture[:end]), b"", b"x")

    def other_formats(self) -> bytes:
        postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/tmp/x) (w) file\n"
        icon = b"icns\0\0\1\0ic09" + b"\0" * 300
        return self.form(
            "/api/models/cups/predict", self.random.choice((postscript, icon, b"RIFF\0\0\0\0WEBP", b"%PDF-1.7"))
        )

    def huge_picture(self) -> bytes:
        """A legal picture of 48 megapixels with sixteen bits each."""
        return self.form("/api/models/cups/predict", _deep_png())

    def damaged_model(self) -> bytes:
        data = bytearray(self.model)
        kind = self.random.randrange(4)
        if kind == 0:
            data = data[: self.random.randrange(len(data))]
        elif kind == 1:
            data[:8] = struct.pack("<Q", self.random.choice((0, 2**40, 2**63, 10)))
        elif kind == 2:
            data[self.random.randrange(4096)] ^= 1 << self.random.randrange(8)
        else:
            data = bytearray(self.random.randbytes(self.random.randrange(10 * MEGABYTE)))
        return self.ask("PUT", f"/api/models/bad{self.random.randrange(99)}/file", bytes(data))

    def uploads_and_uses(self) -> bytes:
        name = f"/api/models/up{self.random.randrange(10**6)}"
        self.ask("PUT", f"{name}/file", self.model)
        self.form(f"{name}/predict", photograph(1))
        return self.ask("DELETE", name)

    def disconnects(self) -> bytes:
        """A lesson that never arrives as a whole."""
        with socket.create_connection(self.address, timeout=120) as connection:
            connection.sendall(
                b"POST /api/models/lessons/learn HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n"
                b"Content-Type: multipart/form-data; boundary=B\r\n\r\n--B\r\nContent-Disposition: form-data; "
                b'name="labels"\r\n\r\nhostile\r\n' + self.random.randbytes(self.random.randrange(500_000))
            )
        return b""

    def never_reads(self) -> bytes:
        return self.ask("GET", self.random.choice(("/api/models/cups/file", "/openapi.json", "/docs")), read=False)

    def headers(self) -> bytes:
        strange = (
            {"Origin": "http://[::1"}, {"Origin": "null"}, {"Host": "127.0.0.1#.evil"}, {"Host": "evil.example"},
            {"If_Match": '"' * 199}, {"Content_Type": "x" * 5000}, {"Inference_Header_Content_Length": "9" * 5000},
            {"Content_Encoding": "gzip"}, {"Authorization": "Basic \xff"}, {"Idempotency_Key": "k" * 500},
            {"Transfer_Encoding": "chunked"}, {"X": "y" * 70_000},
        )  # fmt: skip
        path = self.random.choice(("/v2/models/cups/infer", "/api/models/cups/rename"))
        return self.ask("POST", path, b'{"inputs": [{"shape": ["\\ud800"]}]}', **self.random.choice(strange))

    def not_http(self) -> bytes:
        with socket.create_connection(self.address, timeout=120) as connection:
            connection.sendall(
                self.random.choice((b"\x16\x03\x01\x02\0", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\0" * 99))
            )
            return connection.recv(4096)

    def leaves(self) -> bytes:
        """Files outside the folder, and what is not a file."""
        return self.ask("GET", f"/api/models/{self.random.choice(('pipe', 'link', '..%2f..%2fetc', 'gone'))}/file")

    def strange(self) -> bytes:
        word = self.random.choice
        path = word(_ROUTES).format(*(word(_WORDS) for _ in range(2)))
        query = (
            f"?{word(('top_k', 'threshold', 'skip_broken', 'format'))}={word(_WORDS)}"
            if self.random.random() < 0.3
            else ""
        )
        body = word(
            (b"", b"{}", b"[1]", b'"x"', b"\xff" * 99, json.dumps(self._value()).encode(), b"--B\r\n\r\nx\r\n--B--")
        )
        method = word(("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"))
        if path in ("/api/models/cups", "/api/models/cups/undo"):
            method = "GET"  # whoever may send requests may also delete and undo
        path = "".join(c if c.isascii() and c.isprintable() and c != " " else "%E9" for c in path + query)
        return self.ask(method, path, body, Content_Type=word(_TYPES))

    def _value(self, depth: int = 3) -> Any:
        if depth and self.random.random() < 0.6:
            names = ("images", "labels", "label", "old", "new", "inputs", "outputs", "name", "shape", "data", "id")
            if self.random.random() < 0.7:
                return {self.random.choice(names): self._value(depth - 1) for _ in range(self.random.randrange(4))}
            return [self._value(depth - 1) for _ in range(self.random.randrange(4))]
        return self.random.choice((None, True, 0, -1, 10**30, 1e300, "", "x", "\ud800", "aGk=", "x" * 3000))


def _png(width: int, height: int) -> bytes:
    """A PNG that declares a size and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10**6)))


def _ico() -> bytes:
    inner = _png(7000, 7000)
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 0, 0, 0, 0, 1, 32, len(inner), 22) + inner


_made: dict[str, bytes] = {}


def _deep_png() -> bytes:
    if "deep" not in _made:
        _made["deep"] = encoded(Image.new("I;16", (8000, 6000), 30_000), "PNG")
    return _made["deep"]
