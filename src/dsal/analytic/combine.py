"""Combination of both streams, eq. (19), for tensors and arrays, without importing PyTorch."""

from __future__ import annotations

from typing import Any, TypeVar

Numbers = TypeVar("Numbers", bound=Any)  # a tensor or an array


def combined(main: Numbers, compensation: Numbers, ratio: float) -> Numbers:
    """Return the logits of both streams together, eq. (19): X_M W_M + C X_C W_C."""
    return main + ratio * compensation  # type: ignore[no-any-return]
