"""The address of the page for a phone, and its QR code."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from dsal.serve.address import phone_address
from dsal.serve.engine.service import Service
from dsal.serve.http import schemas
from dsal.serve.http.bodies import Bodies
from dsal.serve.qr_code import qr_code

Page = Annotated[str, Query(pattern=r"^https?://[^/?#@\s]{1,100}$", description="Origin of the page in the browser.")]


def phone_routes(service: Service, bodies: Bodies) -> APIRouter:
    """Return the route of the address."""
    router = APIRouter(prefix="/api", responses=schemas.FAILURES)

    @router.get("/phone")
    def phone(page: Page) -> schemas.Phone:
        """Return the address under which other machines reach the page, with the token, and its QR code."""
        url = phone_address(service.settings, page)
        return schemas.Phone(url=url, qr=[] if url is None else qr_code(url))

    return router
