"""The order in which classes arrive."""

from __future__ import annotations

import numpy as np

from dsal.errors import InputError

Order = str | int
"""``"natural"``, or the seed of a permutation as a number or in digits (``"1993"`` is usual in the field)."""


def class_order(order: Order, classes: int) -> tuple[int, ...]:
    """Return data-set labels in order of arrival: the class at position p is ``class_order(...)[p]``.

    A seed selects the permutation that ``numpy.random.seed(seed)`` gives, which NumPy never changes.

    >>> class_order("natural", 4)
    (0, 1, 2, 3)
    >>> class_order("1993", 100)[:5]
    (68, 56, 78, 8, 23)
    """
    if classes < 1:
        raise InputError(f"a class order needs at least one class, got {classes}")
    if order == "natural":
        return tuple(range(classes))
    return tuple(np.random.RandomState(_seed(order)).permutation(classes).tolist())


def _seed(order: Order) -> int:
    seed = int(order) if isinstance(order, str) and order.isdecimal() else order
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise InputError(f"class order must be 'natural' or a seed from 0 to 2**32 - 1, got {order!r}")
    return seed
