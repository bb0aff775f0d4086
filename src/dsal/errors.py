"""Named errors.

Every error of this package is a :class:`DSALError`, and also the built-in error that a Python or scikit-learn user
would expect, so ``except ValueError`` and ``except DSALError`` both work.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class DSALError(Exception):
    """Base class of all errors raised by this package."""


class InputError(DSALError, ValueError):
    """A value, shape, label or option that cannot be used. The model is unchanged."""


class UnknownNameError(InputError):
    """A name that is not registered; the message suggests the closest one.

    >>> raise UnknownNameError("activation", "rleu", ["relu", "tanh"])
    Traceback (most recent call last):
        ...
    dsal.errors.UnknownNameError: unknown activation 'rleu'; did you mean 'relu'? Valid names: relu, tanh
    """

    def __init__(self, kind: str, name: object, valid: Iterable[str]) -> None:
        self.kind, self.name, self.valid = kind, name, tuple(sorted(valid))
        near = get_close_matches(str(name).lower(), self.valid, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"unknown {kind} {name!r}; {hint}Valid names: {', '.join(self.valid) or '(none)'}")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, object, tuple[str, ...]]]:
        """Rebuild from the three arguments, so that the error survives a process boundary."""
        return type(self), (self.kind, self.name, self.valid)


class PluginError(DSALError, ImportError):
    """An entry point of another package that cannot be used; the message names the package."""


class FileFormatError(DSALError, ValueError):
    """A file that is truncated, corrupt, of another kind, or written by a later version."""


class MissingDataError(DSALError, FileNotFoundError):
    """A missing file of a data set; the message says which file to put where."""


class ModelBusyError(DSALError, TimeoutError):
    """A model file that another process or thread is writing. Nothing was changed; try again, or wait longer."""


class StaleVersionError(DSALError, ValueError):
    """A change made against a version of a model that is not the present one. Nothing was changed.

    Attributes:
        since: descriptions of what has happened since, oldest first; empty if that is not known.
    """

    def __init__(self, since: tuple[str, ...] = ()) -> None:
        self.since = since
        happened = f" ({'; '.join(since)})" if since else ""
        super().__init__(f"the model has changed in the meantime{happened}: look at it again, then repeat the change")

    def __reduce__(self) -> tuple[type[StaleVersionError], tuple[tuple[str, ...]]]:
        """Rebuild from the argument, so that the error survives a process boundary."""
        return type(self), (self.since,)


class MemoryNeededError(DSALError, MemoryError):
    """Learning needs more memory than is available; raised before anything is allocated."""


class LeakError(DSALError, ValueError):
    """Backbone weights that have already seen a class which a later phase treats as new."""


class PrecisionWarning(UserWarning):
    """Learned weights that are less accurate than usual, because a matrix is ill-conditioned."""
