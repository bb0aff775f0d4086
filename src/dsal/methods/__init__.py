"""Class-incremental methods: one file and one line each."""

from dsal.methods.contract import Method, State
from dsal.registry import Registry

METHODS: Registry[type[Method]] = Registry("method")

__all__ = ["METHODS", "Method", "State"]
