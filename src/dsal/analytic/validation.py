"""Checks of the learner's options; each returns the value to use, or raises :class:`InputError`."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TypeGuard

from dsal.analytic.streams import Auto
from dsal.errors import InputError


def is_auto(value: object) -> TypeGuard[Auto]:
    """Return whether the model is to choose this option."""
    return isinstance(value, str) and value == "auto"


def check_size(value: object) -> int:
    """Return d_B as an int of 1 or more."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise InputError(f"expansion_size must be a positive integer, not {value!r}")
    return int(value)


def check_gamma(name: str, value: object) -> float | Auto:
    """Return a ridge penalty as a positive, finite float, or ``"auto"``."""
    return value if is_auto(value) else check_positive(name, value)


def check_positive(name: str, value: object) -> float:
    """Return a positive, finite number as a float."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
        raise InputError(f'{name} must be a positive number or "auto", not {value!r}')
    return float(value)


def check_compensation(value: object) -> float | Auto | None:
    """Return C as a float of 0 or more, ``"auto"``, or None for the main stream alone."""
    if value is None or is_auto(value):
        return value
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise InputError(
            f'compensation must be a number of 0 or more, "auto", or None for the main stream alone, not {value!r}'
        )
    return float(value)
