"""Registries of things chosen by name: one line registers an entry, and a misspelt name gets a suggestion.

Other packages add entries through entry points (docs/plugins.md). They are looked up when a name is requested,
and loaded if it is theirs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Generic, TypeVar, cast

from dsal.errors import PluginError, UnknownNameError

T = TypeVar("T")
Entry = TypeVar("Entry")


class Registry(Generic[T]):
    """A table from names to entries of one kind.

    Args:
        kind: what an entry is called in messages.
        group: group of entry points through which other packages add entries; None if they cannot.
        find: returns functions that load more entries, by name; called once, when the first name is requested.

    >>> shapes: Registry[type] = Registry("shape")
    >>> @shapes.register("circle")
    ... class Circle: ...
    >>> shapes.get("circle") is Circle, shapes.names()
    (True, ('circle',))
    """

    def __init__(
        self, kind: str, group: str | None = None, *, find: Callable[[], Mapping[str, Callable[[], T]]] | None = None
    ) -> None:
        self.kind, self.group, self._find = kind, group, find
        self._entries: dict[str, T] = {}
        self._found: dict[str, list[EntryPoint]] | None = None

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that registers its argument under ``name``, which must not be taken."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is registered twice")

        def add(entry: Entry) -> Entry:
            self._entries[name] = entry  # type: ignore[assignment]  # keeps the entry's own, narrower type
            return entry

        return add

    def get(self, name: str) -> T:
        """Return the entry registered under ``name``.

        Raises:
            UnknownNameError: there is none; the message suggests the nearest name.
            PluginError: it belongs to another package and cannot be loaded, or two packages claim the name.
        """
        plugins = self._plugins()
        if not isinstance(name, str) or not (name in self._entries or name in self._own or name in plugins):
            raise UnknownNameError(self.kind, name, self.names())
        if name not in self._entries:
            self._entries[name] = self._own[name]() if name in self._own else self._load(name, plugins[name])
        return self._entries[name]

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        return tuple(sorted({*self._entries, *self._own, *self._plugins()}))

    def name_of(self, entry: object) -> str | None:
        """Return the name of a registered or loaded entry; None if it has none."""
        return next((name for name in sorted(self._entries) if self._entries[name] is entry), None)

    @cached_property
    def _own(self) -> Mapping[str, Callable[[], T]]:
        """Functions that load the entries that are found rather than registered, by name."""
        return {} if self._find is None else self._find()

    def _plugins(self) -> dict[str, list[EntryPoint]]:
        """Return other packages' entry points by name; warn about those whose names are taken and ignore them."""
        if self._found is None:
            self._found = {}
            for point in _installed().select(group=self.group) if self.group else ():
                if point.name in self._entries or point.name in self._own:
                    warnings.warn(
                        f"{_origin(point)} offers a {self.kind} {point.name!r}, a name that dsal already uses: "
                        "it is ignored",
                        stacklevel=3,
                    )
                else:
                    self._found.setdefault(point.name, []).append(point)
        return self._found

    def _load(self, name: str, points: list[EntryPoint]) -> T:
        if len(points) > 1:
            packages = ", ".join(sorted(map(_origin, points)))
            raise PluginError(
                f"{self.kind} {name!r} is offered by several packages: {packages}. Uninstall all but one."
            )
        (point,) = points
        try:
            entry = point.load()
        except Exception as error:  # third-party code may raise anything
            raise PluginError(
                f"{self.kind} {name!r} of {_origin(point)} cannot be loaded: {type(error).__name__}: {error}. "
                "Repair or uninstall that package."
            ) from error
        if not callable(entry):
            raise PluginError(f"{self.kind} {name!r} of {_origin(point)} is {entry!r}, not a class or function")
        return cast(T, entry)


def check_name(kind: str, name: str, valid: Collection[str]) -> None:
    """Raise :class:`UnknownNameError` unless ``name`` is one of the valid ones."""
    if name not in valid:
        raise UnknownNameError(kind, name, valid)


@cache
def _installed() -> EntryPoints:
    """Return the entry points of all packages and groups, read once because reading is slow."""
    return cast(EntryPoints, entry_points())  # Python 3.10 and 3.11 return another type, which also has select


def _origin(point: EntryPoint) -> str:
    """Return the package that an entry point belongs to, and the object it points to."""
    package = "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
    return f"{package} ({point.value})"
