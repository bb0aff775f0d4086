"""A shortcut around FastAPI for the busiest routes: its routing and validation take a third of a request's time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class Shortcut:
    """ASGI middleware that calls the endpoints of some routes itself, for requests without a query.

    Without a query, nothing is left to validate: all parameters but the path and the body have their defaults. The
    endpoint takes the name in the path and the request, and returns a response or the model of one.

    Args:
        app: the application that answers all other requests.
        routes: the routes, each with one parameter in its path, ``name``.
        failure: returns the response for an error, or raises it.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[APIRoute], failure: Callable[[Exception], Response]) -> None:
        self.app, self.routes, self.failure = app, routes, failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on."""
        if scope["type"] == "http" and not scope["query_string"]:
            for route in self.routes:
                match = route.path_regex.match(scope["path"])
                if match is not None and scope["method"] in (route.methods or ()):
                    scope["route"] = route  # for the metrics
                    response = await self._response(route, match["name"], Request(scope, receive))
                    await response(scope, receive, send)
                    return
        await self.app(scope, receive, send)

    async def _response(self, route: APIRoute, name: str, request: Request) -> Response:
        try:
            answer: Response | BaseModel = await route.endpoint(name=name, request=request)
        except Exception as error:
            return self.failure(error)
        if isinstance(answer, Response):
            return answer
        return Response(answer.model_dump_json(), media_type="application/json")
