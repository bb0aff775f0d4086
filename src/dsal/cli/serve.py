"""``dsal serve``: teach models in the browser, use them over HTTP."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsal.cli.arguments import flag, option
from dsal.cli.say import say
from dsal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from dsal.serve.http.app import Routes
    from dsal.serve.settings import Settings


def serve(
    models: Annotated[Path, option("Folder with the models; created if missing.")] = Path("models"),
    host: Annotated[str, option("Address to listen on; any but this machine's own needs a token.")] = ("127.0.0.1"),
    port: Annotated[int, option("Port; 0 picks a free one.")] = 8000,
    ssl_certfile: Annotated[
        Path | None, option("Certificate for https (PEM); browsers on other machines need https for the camera.")
    ] = None,
    ssl_keyfile: Annotated[Path | None, option("Private key of the certificate, if in another file.")] = (None),
    token: Annotated[
        str | None,
        typer.Option(envvar="DSAL_TOKEN", help="Token that requests must carry.", show_default="generated if needed"),
    ] = None,
    allow_host: Annotated[list[str] | None, option("Public host name, if behind a proxy; may be repeated.")] = None,
    backbone: Annotated[str, option("Backbone of new models, as in `dsal learn`.")] = "efficientnet-lite0",
    expansion_size: Annotated[int, option("d_B of new models; the time for a lesson grows quadratically.")] = 2048,
    max_batch: Annotated[int, option("Maximum number of images to predict together.")] = 6,
    max_wait_ms: Annotated[float, option("Milliseconds that a prediction waits for others to share its batch.")] = 0.0,
    memory: Annotated[str, option("Memory limit of the server; models that are not in use are unloaded.")] = "4GB",
    access_log: Annotated[Path | None, option("Log of all requests, a line of JSON each.", metavar="FILE")] = None,
    audit_log: Annotated[
        Path | None, option("Log of all changes, a line of JSON each.", "MODELS/.audit.jsonl", metavar="FILE")
    ] = None,
    proxy: Annotated[
        list[str] | None,
        option("Address of a proxy whose X-Forwarded-For is trusted; may be repeated.", metavar="ADDRESS"),
    ] = None,
    allow_foreign_backbones: Annotated[bool, option("Accept uploaded models that bring their own ONNX graph.")] = False,
    label_studio: Annotated[
        str | None, option("Be an ML backend of the Label Studio at this address.", metavar="URL")
    ] = None,
    label_studio_key: Annotated[
        str | None, typer.Option(envvar="LABEL_STUDIO_API_KEY", help="API key of Label Studio.", show_default=False)
    ] = None,
    deepstack: Annotated[bool, flag("--deepstack", "Also offer the DeepStack API, for cameras.")] = False,
    limit: Annotated[
        list[str] | None, option("Change a limit, such as max-body=16MB; may be repeated.", metavar="NAME=VALUE")
    ] = None,
) -> None:
    """Serve a folder of models: a web page to teach and try them, an API to use them.

    Models are files like those of `dsal learn`. No image is kept.
    """
    try:
        from dsal.serve.server import listen, run
    except ImportError as error:
        raise InputError(f"serving needs another package ({error}): pip install 'dsal-learn[serve]'") from error
    from dsal.serve.address import page_address
    from dsal.serve.settings import Settings, is_loopback, limits, quantity

    generated = token is None and not is_loopback(host)
    if generated:
        token = secrets.token_urlsafe(24)
    settings = Settings(
        folder=models,
        host=host,
        port=port,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        token=token,
        allowed_hosts=tuple(allow_host or ()),
        backbone=backbone,
        expansion_size=expansion_size,
        max_batch=max_batch,
        max_wait_ms=max_wait_ms,
        memory=int(quantity(memory)),
        foreign_backbones=allow_foreign_backbones,
        proxies=tuple(proxy or ()),
        access_log=access_log,
        audit_log=audit_log,
        **limits(limit or ()),
    )
    models.mkdir(parents=True, exist_ok=True)
    more, around = _adapters(settings, label_studio, label_studio_key, deepstack)
    listener = listen(settings)
    address = page_address(settings, listener.getsockname()[1], generated)  # a token of the user's stays out of logs
    say(address)
    if not settings.on_loopback:
        _invite(address, settings)
    say(f"models in {models.resolve()}; stop with Ctrl-C", err=True)
    try:
        run(settings, listener, more, around)
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
    say("stopped", err=True)


def _invite(address: str, settings: Settings) -> None:
    """Say how another machine opens the page: on a terminal with a QR code."""
    from dsal.serve.qr_code import in_terminal, qr_code

    if sys.stderr.isatty():
        say(in_terminal(qr_code(address)), err=True)
    if settings.ssl_certfile is None:
        say("on other machines the camera needs https (--ssl-certfile, --ssl-keyfile); photos work without", err=True)


def _adapters(
    settings: Settings, label_studio: str | None, label_studio_key: str | None, deepstack: bool
) -> tuple[list[Routes], Callable[[ASGIApp], ASGIApp] | None]:
    """Return the routes of the adapters that were asked for, and what goes around the application."""
    more: list[Routes] = []
    if label_studio is not None:
        from dsal.integrations.label_studio import label_studio_routes

        more.append(label_studio_routes(label_studio, label_studio_key))
    if not deepstack:
        return more, None
    from dsal.integrations.deepstack import DeepStack

    return more, lambda app: DeepStack(app, settings)
