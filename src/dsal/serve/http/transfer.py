"""Download, upload, export and delete models."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from dsal.errors import DSALError
from dsal.serve.engine.names import model_path
from dsal.serve.engine.service import Service
from dsal.serve.http import schemas
from dsal.serve.http.bodies import Bodies
from dsal.serve.http_errors import Refusal
from dsal.serve.settings import MEGABYTE

_FILE: dict[str, Any] = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}


def transfer_routes(service: Service, bodies: Bodies) -> APIRouter:
    """Return the routes for model files."""
    router = APIRouter(prefix="/api/models", responses=schemas.FAILURES)
    library, one_export, uploads = service.library, asyncio.Semaphore(1), 0

    @router.get("/{name}/file", response_class=Response, responses={200: _FILE})
    def download(name: str) -> Response:
        """Download the model file, as used by `dsal learn` and `dsal predict`."""
        return _streamed(_opened(library.folder, name), f"{name}.dsal")

    @router.put("/{name}/file", status_code=201, openapi_extra={"requestBody": {"required": True, **_FILE}})
    async def upload(name: str, request: Request) -> schemas.Changed:
        """Upload a model file; it is checked like any model file.

        Nothing in it is executed, unless the server was started with `--allow-foreign-backbones`.
        """
        nonlocal uploads
        model_path(library.folder, name)
        if uploads >= service.settings.max_uploads:
            raise Refusal(429, f"{uploads} models are already being uploaded: try again later", retry_after=10)
        target = library.folder / f".upload-{secrets.token_hex(8)}.tmp"
        uploads += 1
        try:
            with target.open("wb") as file:
                part = bytearray()
                async for piece in request.stream():
                    part += piece
                    if len(part) >= MEGABYTE or not piece:  # the last piece is empty
                        await asyncio.to_thread(file.write, part)
                        part = bytearray()
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
            try:
                await asyncio.to_thread(library.check, target)
                await service.writer.run(library.add, name, target)
            except (DSALError, MemoryError) as error:
                if isinstance(error, Refusal):
                    raise
                raise Refusal(422, str(error).replace(str(target), "the file")) from error
        finally:
            uploads -= 1
            await asyncio.to_thread(target.unlink, missing_ok=True)  # of a large file, this takes its time
        return schemas.Changed(changed=f"added {name!r}")

    @router.delete("/{name}")
    async def remove(name: str) -> schemas.Changed:
        """Delete a model and its file."""
        await service.writer.run(library.remove, name)
        return schemas.Changed(changed=f"deleted {name!r}")

    @router.get("/{name}/export", response_class=Response, responses={200: _FILE})
    async def export(
        name: str, request: Request, format: Annotated[str, Query(pattern="^(onnx|torch)$")] = "onnx"
    ) -> Response:
        """Export the model as one graph from pixels to logits for other runtimes: ONNX or torch.export."""
        path = model_path(library.folder, name)
        if not path.exists():
            raise Refusal(404, f"there is no model {name!r}")
        if one_export.locked():
            raise Refusal(429, "another export is in progress: try again", retry_after=10)
        suffix = "onnx" if format == "onnx" else "pt2"
        async with one_export:
            with tempfile.TemporaryDirectory(prefix="dsal-export-") as folder:
                target = Path(folder) / f"model.{suffix}"
                await _exported(request, path, format, target)
                return _streamed(target.open("rb", buffering=0), f"{name}.{suffix}")

    return router


async def _exported(request: Request, path: Path, format: str, target: Path) -> None:
    """Run ``dsal export`` in its own process, so that nobody waits for it; kill it if the client disconnects."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dsal", "export", str(path), f"--{format}", str(target),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    ending = asyncio.ensure_future(process.communicate())
    try:
        while not ending.done():
            await asyncio.wait([ending], timeout=0.5)
            if await request.is_disconnected():
                raise Refusal(408, "the client disconnected")
        _, stderr = await ending
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        line = stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise Refusal(501 if "pip install" in line[0] else 422, line[0].removeprefix("error: "))


def _opened(folder: Path, name: str) -> FileIO:
    """Open a model file in the folder: no pipe, on which this would wait for ever, and no link that leads elsewhere."""
    path = model_path(folder, name)
    try:
        if Path(os.path.realpath(path)).parent != Path(os.path.realpath(folder)):
            raise Refusal(403, f"the model {name!r} is a link to a file outside the folder: it cannot be downloaded")
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        file = FileIO(os.open(path, flags), closefd=True)  # if the file is replaced, this still reads the old one
    except FileNotFoundError:
        raise Refusal(404, f"there is no model {name!r}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Refusal(404, f"there is no model {name!r}: what has its name is not a file")
    return file


def _parameter(filename: str) -> str:
    return f'filename="{filename}"' if filename.isascii() else f"filename*=UTF-8''{quote(filename)}"


def _streamed(file: FileIO, filename: str) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        with file:
            while piece := await asyncio.to_thread(file.read, MEGABYTE):
                yield piece

    headers = {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": "attachment; " + _parameter(filename),
    }
    return StreamingResponse(pieces(), media_type="application/octet-stream", headers=headers)
