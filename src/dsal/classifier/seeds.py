"""Convert scikit-learn's ``random_state`` to one integer."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from dsal.errors import InputError


def seed_of(random_state: Any) -> int:
    """Return one integer for an integer, None, NumPy ``RandomState`` or ``Generator``, or ``torch.Generator``."""
    if isinstance(random_state, torch.Generator):
        return int(torch.randint(2**31, (), generator=random_state, device=random_state.device))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, Integral) and not isinstance(random_state, bool):
        seed = int(random_state)
        if not 0 <= seed < 2**32:
            raise InputError(f"random_state must be from 0 to 2**32 - 1, not {seed}")
        return seed
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError as error:
        raise InputError(f"random_state: {error}") from error
