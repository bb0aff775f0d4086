"""Convert numeric user input to arrays without loss; reject what an array cannot hold."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dsal.errors import InputError


def as_array(value: Any, name: str) -> Any:
    """Return a tensor as a NumPy array, a masked array without its mask, and anything else unchanged.

    Args:
        value: user input.
        name: its name in error messages.

    Raises:
        InputError: cells are masked, or a tensor has no values that an array can hold.
    """
    if np.ma.is_masked(value):
        raise InputError(
            f"{name} is a masked array with masked cells, which cannot be learned: "
            "remove those rows, or fill the cells with meaningful values (filled)"
        )
    if isinstance(value, np.ma.MaskedArray):
        return value.data
    torch = sys.modules.get("torch")  # loaded if the user passes a tensor
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    try:
        dense = value.detach().cpu()
        return (dense.float() if dense.element_size() == 2 and dense.is_floating_point() else dense).numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        kind = "on the meta device, which holds no numbers" if value.is_meta else f"of {value.layout}, {value.dtype}"
        raise InputError(f"{name} is a tensor {kind}: pass a dense tensor of numbers") from error
