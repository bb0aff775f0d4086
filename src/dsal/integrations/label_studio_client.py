"""Read images and annotations from one Label Studio; no other address is ever contacted."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from dsal.errors import InputError
from dsal.serve.http_errors import Refusal

_SECONDS = 20.0
_PAGE = 100  # tasks per request


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class LabelStudio:
    """A Label Studio server.

    Args:
        address: such as ``http://127.0.0.1:8080``.
        key: an API key: a legacy token, or a personal access token (a JWT).
        most: largest file that is read, in bytes.
    """

    def __init__(self, address: str, key: str | None, most: int) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(f"the address of Label Studio must be like http://127.0.0.1:8080, not {address!r}")
        self.address, self.most = f"{parts.scheme}://{parts.netloc}", most
        self._key, self._access = key, ""
        self._open = urllib.request.build_opener(_NoRedirect).open

    async def image(self, url: str) -> bytes:
        """Return an image of a task: a path or address of this server, or a data URL."""
        if url.startswith("data:"):
            try:
                return base64.b64decode(url.partition(",")[2], validate=True)
            except binascii.Error as error:
                raise Refusal(422, f"the image of the task is not base64: {error}") from None
        return await asyncio.to_thread(self._read, url)

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON answer of an API path."""
        return json.loads(await asyncio.to_thread(self._read, f"{path}?{urlencode(query)}" if query else path))

    async def tasks(self, project: int) -> list[dict[str, Any]]:
        """Return all tasks of a project with their annotations."""
        found: list[dict[str, Any]] = []
        while True:
            page = len(found) // _PAGE + 1
            answer = await self.get("/api/tasks", project=project, page=page, page_size=_PAGE, fields="all")
            found += answer["tasks"]
            if not answer["tasks"] or len(found) >= answer["total"]:
                return found

    def _read(self, url: str) -> bytes:
        whole = urljoin(self.address, url)
        parts = urlsplit(whole)
        if f"{parts.scheme}://{parts.netloc}" != self.address:
            raise Refusal(422, f"images are read from {self.address} only, not from {parts.netloc[:100]!r}")
        try:
            return self._fetch(whole)
        except urllib.error.HTTPError as error:
            if error.code == 401 and self._is_jwt:
                self._access = ""
                try:
                    return self._fetch(whole)
                except OSError as again:
                    raise Refusal(502, f"Label Studio did not answer: {again}", 5) from again
            raise Refusal(502, f"Label Studio answered {error.code} for {parts.path[:200]}", 5) from error
        except OSError as error:
            raise Refusal(502, f"Label Studio did not answer: {error}", 5) from error

    @property
    def _is_jwt(self) -> bool:
        return self._key is not None and self._key.count(".") == 2

    def _fetch(self, url: str) -> bytes:
        headers = {}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._token()}" if self._is_jwt else f"Token {self._key}"
        with self._open(urllib.request.Request(url, headers=headers), timeout=_SECONDS) as answer:
            data: bytes = answer.read(self.most + 1)
        if len(data) > self.most:
            raise Refusal(413, f"a file of Label Studio is larger than {self.most} bytes")
        return data

    def _token(self) -> str:
        """Return an access token, which a personal access token is exchanged for."""
        if not self._access:
            body = json.dumps({"refresh": self._key}).encode()
            request = urllib.request.Request(
                f"{self.address}/api/token/refresh", body, {"Content-Type": "application/json"}
            )
            with self._open(request, timeout=_SECONDS) as answer:
                self._access = json.loads(answer.read(2**16))["access"]
        return self._access
