"""Serve image models over HTTP: a page to teach them and an API to use them."""

from dsal.serve.http.app import create_app
from dsal.serve.settings import Settings

__all__ = ["Settings", "create_app"]
