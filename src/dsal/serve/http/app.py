"""The ASGI application: routes, the guard in front of them, and errors as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, JSONResponse
from starlette.staticfiles import StaticFiles

from dsal.base import __version__
from dsal.serve.address import phone_address
from dsal.serve.engine.records import CONTENT_TYPE
from dsal.serve.engine.service import Service
from dsal.serve.http import schemas
from dsal.serve.http.api import api_routes
from dsal.serve.http.bodies import Bodies
from dsal.serve.http.corrections import correction_routes
from dsal.serve.http.guard import EXPECTED, Guard, failure, refused
from dsal.serve.http.open_inference import inference_routes
from dsal.serve.http.transfer import transfer_routes
from dsal.serve.qr_code import qr_code
from dsal.serve.settings import Settings

PAGE = Path(__file__).parents[1] / "page"
_FRESH = {"Cache-Control": "no-cache"}

PageOrigin = Annotated[
    str, Query(pattern=r"^https?://[^/?#@\s]{1,100}$", description="Origin of the page in the browser.")
]
Routes: TypeAlias = Callable[[Service, Bodies], APIRouter]


def create_app(settings: Settings, more: Sequence[Routes] = ()) -> Guard:
    """Return the ASGI application of a server with these settings, and with the routes of adapters."""
    service, bodies = Service(settings), Bodies(settings)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service.library.tidy()
        yield
        await asyncio.to_thread(service.close)  # the loop still has answers to send

    app = FastAPI(
        title="dsal serve",
        version=__version__,
        description="Image models that learn new classes in closed form, forget none and keep no image.",
        openapi_url=None,  # FastAPI would write it in the event loop
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    for routes in (api_routes, correction_routes, inference_routes, transfer_routes, *more):
        app.include_router(routes(service, bodies))

    @app.get("/metrics", include_in_schema=False)
    def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/openapi.json", include_in_schema=False)
    def openapi() -> Response:
        return JSONResponse(app.openapi())

    @app.get("/api/phone", responses=schemas.FAILURES)
    def phone(page: PageOrigin) -> schemas.Phone:
        """Return the address under which other machines reach the page, with the token, and its QR code."""
        url = phone_address(settings, page)
        return schemas.Phone(url=url, qr=[] if url is None else qr_code(url))

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return FileResponse(PAGE / "index.html", headers=_FRESH)

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return FileResponse(PAGE / "docs.html", headers=_FRESH)

    app.mount("/page", _Fresh(directory=PAGE))
    _add_error_handlers(app)
    return Guard(app, service, bodies)


class _Fresh(StaticFiles):
    """Static files that browsers revalidate, so that an upgrade takes effect."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_FRESH)
        return response


def _add_error_handlers(app: FastAPI) -> None:
    """Answer every error with ``{"error": "one sentence"}``."""

    async def failed(request: Request, error: Exception) -> Response:
        return failure(error)

    for kind in EXPECTED:
        app.add_exception_handler(kind, failed)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = " ".join(map(str, first["loc"][1:])) or "the body"
        return refused(422, f"{where}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        messages = {404: f"nothing found at {request.url.path[:100]}", 405: f"{request.method} is not allowed here"}
        return refused(error.status_code, messages.get(error.status_code, str(error.detail)), headers=error.headers)
