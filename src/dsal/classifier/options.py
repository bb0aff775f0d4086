"""What :class:`~dsal.classifier.DSALClassifier` was asked to do, checked once and turned into what the streams need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from dsal.activations import Activation, resolve
from dsal.blas import Backend, backend_for
from dsal.errors import InputError
from dsal.expansion import Expansion, expansions
from dsal.streams import DualStream


@dataclass(frozen=True)
class Options:
    """The constructor's arguments, valid and resolved."""

    size: int
    gamma: float | None  # None: to be chosen in the first phase
    gamma_comp: float | str | None  # None: that of the main stream; "auto": to be chosen in the first phase
    activation: Activation
    main_activation: Activation
    expansion: type[Expansion]
    cleanse: bool
    backend: Backend

    @classmethod
    def of(cls, estimator: Any) -> Options:
        """Check the parameters of an estimator, or raise :class:`InputError` naming the first that is wrong."""
        size = estimator.expansion_size
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise InputError(f"expansion_size must be a positive integer, not {size!r}")
        comp = estimator.gamma_comp
        if not is_auto(estimator.compensation):
            checked_compensation(estimator.compensation)
        return cls(
            size=int(size),
            gamma=None if is_auto(estimator.gamma) else positive("gamma", estimator.gamma),
            gamma_comp=comp if comp is None or is_auto(comp) else positive("gamma_comp", comp),
            activation=resolve(estimator.activation),
            main_activation=resolve(estimator.main_activation),
            expansion=expansions.get(estimator.expansion),
            cleanse=bool(estimator.cleanse),
            backend=backend_for(estimator.device),
        )

    def streams(self, expansion: Expansion, gammas: tuple[float, float], compensated: bool) -> DualStream:
        """Streams that have learned nothing yet; only the main one unless ``compensated``.

        ``gammas`` are those of both streams, as given or as chosen.
        """
        return DualStream(
            expansion,
            main_activation=self.main_activation,
            activation=self.activation if compensated else None,
            gamma=gammas[0],
            gamma_comp=gammas[1],
            cleanse=self.cleanse,
            backend=self.backend,
        )


def is_auto(value: object) -> bool:
    """Whether a parameter is left to the model to choose."""
    return isinstance(value, str) and value == "auto"


def positive(name: str, value: object) -> float:
    """``value`` as a float, if it is a positive, finite number."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
        raise InputError(f'{name} must be a positive number or "auto", not {value!r}')
    return float(value)


def checked_compensation(value: object) -> float:
    """C of eq. (19), where it is not chosen, as a float: 0 or more; None, for the main stream alone, counts as 0."""
    if value is None:
        return 0.0
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise InputError(
            f'compensation must be a number from 0 up, "auto", or None for the main stream alone, not {value!r}'
        )
    return float(value)


def seed_of(random_state: Any) -> int:
    """One integer that stands for an integer, None, a NumPy ``RandomState`` or ``Generator``, a ``torch.Generator``."""
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
