"""Schemas of files: declared once for each kind of file, and checked before any content is used.

Facts are JSON values. Names, types and shapes of arrays are checked before the arrays are read, so a file cannot
request more memory than its kind needs. What does not match raises :class:`Mismatch`, which names the part.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError
from dsal.files.atomic import StrPath, check_readable, write_text

Facts: TypeAlias = dict[str, Any]
Dimension: TypeAlias = "int | str | Callable[[Mapping[str, int]], int]"
VALUES = 500_000  # maximum number of values in one JSON text: each takes about a hundred bytes of memory
_NESTED = 20  # maximum levels of lists and tables


class Mismatch(ValueError):
    """A part of a file that does not match its schema."""


def parse_json(text: str) -> Any:
    """Parse a JSON text of a bounded number of values; NaN and infinities pass, for a :class:`Fact` to reject by name.

    Raises:
        Mismatch: it is not JSON, or has too many values.
    """
    if sum(map(text.count, ",[{")) > VALUES:
        raise Mismatch(f"it has more than {VALUES} values")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise Mismatch("its lists are nested too deeply") from error
    except ValueError as error:
        raise Mismatch(f"it is truncated, corrupt or not JSON: {error}") from error


class Fact(ABC):
    """A requirement on a value."""

    @abstractmethod
    def check(self, value: object, where: str) -> None:
        """Raise :class:`Mismatch` if ``value``, the part of the file called ``where``, does not meet it."""


@dataclass(frozen=True)
class Text(Fact):
    """Unicode text without surrogates, of bounded length."""

    most: int = 1000

    def check(self, value: object, where: str) -> None:
        _demand(
            isinstance(value, str) and len(value) <= self.most, where, f"text of up to {self.most} characters", value
        )
        _demand(not re.search("[\ud800-\udfff]", str(value)), where, "text without surrogates", value)


@dataclass(frozen=True)
class Number(Fact):
    """A finite number from ``low`` to ``high``; ``whole``: an integer."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def check(self, value: object, where: str) -> None:
        valid = isinstance(value, int if self.whole else (int, float)) and not isinstance(value, bool)
        valid = valid and not (isinstance(value, float) and not math.isfinite(value))
        expected = f"{'an integer' if self.whole else 'a finite number'} from {self.low} to {self.high}"
        _demand(valid and self.low <= value <= self.high, where, expected, value)  # type: ignore[operator]


@dataclass(frozen=True)
class Flag(Fact):
    """True or false."""

    def check(self, value: object, where: str) -> None:
        _demand(isinstance(value, bool), where, "true or false", value)


@dataclass(frozen=True)
class Choice(Fact):
    """One of a few values."""

    values: tuple[str | int | None, ...]

    def check(self, value: object, where: str) -> None:
        valid = any(type(value) is type(choice) and value == choice for choice in self.values)
        _demand(valid, where, " or ".join(map(repr, self.values)), value)


@dataclass(frozen=True)
class Maybe(Fact):
    """A value, or null."""

    fact: Fact

    def check(self, value: object, where: str) -> None:
        if value is not None:
            self.fact.check(value, where)


@dataclass(frozen=True)
class Each(Fact):
    """A list of ``least`` to ``most`` values of one kind."""

    fact: Fact
    least: int = 0
    most: int = VALUES

    def check(self, value: object, where: str) -> None:
        valid = isinstance(value, list) and self.least <= len(value) <= self.most
        _demand(valid, where, f"a list of {self.least} to {self.most} values", value)
        for number, item in enumerate(value):  # type: ignore[arg-type, var-annotated]
            self.fact.check(item, f"{where}[{number}]")


@dataclass(frozen=True)
class Record(Fact):
    """A table with these keys; ``optional`` ones may be missing; ``rest`` is the requirement on others, if allowed."""

    keys: Mapping[str, Fact]
    optional: Mapping[str, Fact] = field(default_factory=dict)
    rest: Fact | None = None

    def check(self, value: object, where: str) -> None:
        _demand(isinstance(value, dict), where, "a table", value)
        assert isinstance(value, dict)
        for key in self.keys:
            _demand(key in value, where, f"a table with the key {key!r}", value)
        for key, item in value.items():
            Text(1000).check(key, f"a key of {where}")
            fact = self.keys.get(key) or self.optional.get(key) or self.rest
            if fact is None:
                raise Mismatch(f"{where} has the unknown key {key!r}")
            fact.check(item, f"{where}.{key}")


@dataclass(frozen=True)
class Ruled(Fact):
    """A value whose parts must also be consistent: ``rule`` returns what is wrong with it, or None."""

    fact: Fact
    rule: Callable[[Any], str | None]

    def check(self, value: object, where: str) -> None:
        self.fact.check(value, where)
        if (wrong := self.rule(value)) is not None:
            raise Mismatch(f"{where}: {wrong}")


@dataclass(frozen=True)
class Anything(Fact):
    """Any value of bounded depth with finite numbers and valid text."""

    depth: int = _NESTED

    def check(self, value: object, where: str) -> None:
        _demand(self.depth > 0, where, f"at most {_NESTED} levels of lists and tables", value)
        inner = Anything(self.depth - 1)
        if isinstance(value, list):
            Each(inner).check(value, where)
        elif isinstance(value, dict):
            Record({}, rest=inner).check(value, where)
        elif isinstance(value, str):
            Text(100_000).check(value, where)
        elif value is not None and not isinstance(value, bool):
            Number(-1e300, 1e300).check(value, where)


ANY_TABLE = Record({}, rest=Anything())


@dataclass(frozen=True)
class Array:
    """Requirements on an array.

    Attributes:
        dtype: NumPy names of the allowed types; empty for any, if ``shape`` is None.
        shape: the length of each axis: a number, a name (the same length wherever the name appears in a file; for a
            name that begins with an underscore, only in this array), or a function of the named lengths; None for any.
        low: smallest allowed value; numbers must always be finite.
        high: largest allowed value.
        optional: it may be missing.
    """

    dtype: str | tuple[str, ...]
    shape: tuple[Dimension, ...] | None
    low: float | None = None
    high: float | None = None
    optional: bool = False

    def check_values(self, array: NDArray[Any], where: str) -> None:
        """Raise :class:`Mismatch` if a number is not finite or out of range."""
        if not array.size:
            return
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Mismatch(f"{where} has values that are not finite")
        if (self.low is not None and array.min() < self.low) or (self.high is not None and array.max() > self.high):
            expected = f"from {'-inf' if self.low is None else self.low} to {'inf' if self.high is None else self.high}"
            raise Mismatch(f"the values of {where} must be {expected}, but are from {array.min()} to {array.max()}")


ANY_ARRAY = Array((), None, optional=True)


def like(tensors: Mapping[str, Any], prefix: str = "", optional: bool = False) -> dict[str, Array]:
    """Return the requirements on arrays that replace these tensors or arrays, by name after ``prefix``."""

    def array(name: str, value: Any) -> Array:
        low = 0.0 if name.endswith("running_var") else None  # a variance: its square root is taken
        return Array(str(value.dtype).removeprefix("torch."), tuple(value.shape), low, optional=optional)

    return {re.escape(prefix + name): array(name, value) for name, value in tensors.items()}


Header: TypeAlias = tuple[str, tuple[int, ...]]  # NumPy name of the type, and shape


def check_headers(headers: Mapping[str, Header], arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
    """Check names, types and shapes of a file's arrays.

    Args:
        headers: types and shapes of the arrays in the file.
        arrays: the requirements on them, by regular expressions that match whole names.
        sizes: lengths of named axes that are already known.

    Raises:
        Mismatch: one is missing, unknown, or of another type or shape.
    """
    known = dict(sizes)
    matched = {name: _pattern(name, arrays) for name in headers}
    for required, array in arrays.items():
        if not array.optional and required not in matched.values():
            raise Mismatch(f"it lacks the array {required}")
    formulas = []
    for name, (dtype, shape) in headers.items():
        if (pattern := matched[name]) is None:
            raise Mismatch(f"it has the unknown array {name[:80]!r}")
        array = arrays[pattern]
        own: dict[str, int] = {}
        types = (array.dtype,) if isinstance(array.dtype, str) else array.dtype
        if array.shape is None:
            continue
        if dtype not in types or len(shape) != len(array.shape):
            raise Mismatch(
                f"{name} must be {' or '.join(types)} of {len(array.shape)} axes, not {dtype} of shape {shape}"
            )
        for axis, (length, expected) in enumerate(zip(shape, array.shape, strict=True)):
            if callable(expected):
                formulas.append((name, axis, length, expected))
                continue
            if isinstance(expected, str):
                expected = (own if expected.startswith("_") else known).setdefault(expected, length)
            if length != expected:
                raise Mismatch(f"{name} must have the length {expected} along axis {axis}, not {length}")
    for name, axis, length, formula in formulas:
        if length != formula(known):
            raise Mismatch(f"{name} must have the length {formula(known)} along axis {axis}, not {length}")


def check_values(arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, Array]) -> None:
    """Raise :class:`Mismatch` if a number is not finite or out of range; check the headers first."""
    for name, array in arrays.items():
        pattern = _pattern(name, expected)
        if pattern is not None:
            expected[pattern].check_values(array, name)


def check_arrays(arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
    """Check arrays that are in memory: :func:`check_headers` and :func:`check_values`."""
    check_headers({name: (array.dtype.name, array.shape) for name, array in arrays.items()}, expected, sizes)
    check_values(arrays, expected)


def triangle(side: str) -> Callable[[Mapping[str, int]], int]:
    """Return the length of the packed triangle of a matrix, as a function of the named length ``side``."""
    return lambda sizes: sizes[side] * (sizes[side] + 1) // 2


@dataclass(frozen=True)
class Schema:
    """Requirements on a safetensors file of one kind.

    Attributes:
        kind: the kind that the file must declare; None for any.
        facts: its other facts.
        arrays: its arrays by name (a regular expression), or a function of the facts that returns them; None for any
            arrays of finite numbers.
        sizes: lengths of named axes, as a function of the facts.
    """

    kind: str | None
    facts: Fact
    arrays: Mapping[str, Array] | Callable[[Facts], Mapping[str, Array]] | None
    sizes: Callable[[Facts], Mapping[str, int]] = lambda facts: {}

    def expected(self, facts: Facts) -> Mapping[str, Array]:
        """Return the requirements on the arrays of a file with these facts."""
        if self.arrays is None:
            return {".*": ANY_ARRAY}
        return self.arrays(facts) if callable(self.arrays) else self.arrays


def _pattern(name: str, arrays: Mapping[str, Array]) -> str | None:
    if (escaped := re.escape(name)) in arrays:  # the hundreds of weights of a model are all listed by their exact names
        return escaped
    return next((pattern for pattern in arrays if re.fullmatch(pattern, name, re.DOTALL)), None)


def _demand(valid: bool, where: str, expected: str, got: object) -> None:
    if not valid:
        raise Mismatch(f"{where} must be {expected}, not {_described(got)}")


def _described(value: object) -> str:
    """Describe a value in a few words, however large it is."""
    if isinstance(value, str):
        return ascii(value) if len(value) <= 40 else f"{value[:40]!a} and {len(value) - 40} more characters"
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    return repr(value) if not isinstance(value, int) or value.bit_length() <= 64 else "a very large integer"


_JSON_BYTES = 2**26


def write_json(path: StrPath, value: Any) -> None:
    """Write a JSON file, atomically; numbers must be finite."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path: StrPath, fact: Fact) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        FileFormatError: it is truncated or corrupt, too large, or does not match ``fact``.
    """
    path = check_readable(path)
    try:
        if path.stat().st_size > _JSON_BYTES:
            raise Mismatch(f"it has more than {_JSON_BYTES} bytes")
        value = parse_json(path.read_text(encoding="utf-8"))
        fact.check(value, "the document")
    except (Mismatch, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} cannot be used: {error}") from error
    return value
