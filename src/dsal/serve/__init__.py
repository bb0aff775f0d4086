"""Image models behind HTTP: a page to teach them, an API to use them."""

from dsal.serve.app import create_app
from dsal.serve.settings import Settings

__all__ = ["Settings", "create_app"]
