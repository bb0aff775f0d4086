"""Things chosen by name: one line registers an entry, a misspelling is answered with the right spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from dsal.errors import UnknownNameError

T = TypeVar("T")
Entry = TypeVar("Entry")


class Registry(Generic[T]):
    """A table from names to entries of one kind.

    >>> shapes: Registry[type] = Registry("shape")
    >>> @shapes.register("circle")
    ... class Circle: ...
    >>> shapes.get("circle") is Circle, shapes.names()
    (True, ('circle',))
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that files its argument under ``name``; a name is given once."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is registered twice")

        def file(entry: Entry) -> Entry:
            self._entries[name] = entry  # type: ignore[assignment]  # keeps the entry's own, narrower type
            return entry

        return file

    def get(self, name: str) -> T:
        """Return the entry filed under ``name``, or raise :class:`UnknownNameError` with the nearest spelling."""
        if not isinstance(name, str) or name not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        return self._entries[name]

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._entries))
