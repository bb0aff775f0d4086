"""The expansion B (the paper's buffer layer): a fixed map of features (n x d_in) to a wider space (n x d_B).

A new expansion is one subclass of :class:`Expansion` with one ``@expansions.register`` line. Its state is
kept in buffers, so it moves between devices, changes precision and is saved like any ``nn.Module``.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from dsal.base.registry import Registry
from dsal.errors import InputError

Product: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # a matrix product
Rounding: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # see Expansion.rounding


class Expansion(nn.Module, ABC):
    """Base class of all expansions."""

    name: ClassVar[str]
    wants_rows: ClassVar[bool] = False  # whether build() needs `size` rows of the first phase

    projection: Tensor  # (d_in x d_B)

    def __init__(self, projection: Tensor) -> None:
        super().__init__()
        self.register_buffer("projection", projection)

    @classmethod
    @abstractmethod
    def build(cls, features: int, size: int, seed: int, rows: Tensor, **options: Any) -> Expansion:
        """Build the expansion from ``features`` = d_in to ``size`` = d_B numbers.

        Args:
            features: width of the input.
            size: width of the output.
            seed: for random numbers, drawn on the CPU in float64: the same on every device.
            rows: rows of the first phase, picked at random (n x d_in); with ``wants_rows``, at least ``size`` of them
                if the phase has that many.
            options: specific to this kind of expansion.
        """

    @abstractmethod
    def forward(self, features: Tensor, product: Product = torch.matmul) -> Tensor:
        """Return B(features) (n x d_B), for features (n x d_in). ``product`` is the matrix product to use."""

    def rounding(self) -> Rounding | None:
        """Return a function that estimates float32's error in B(F), or None (the default) to predict in float64.

        Its arguments are features F (n x d_in) in float32 and the 2-norm of each row of B(F) (n,). It returns a
        generous estimate of the 2-norm of each row's error (n,), in units of float32's rounding, 2**-24.
        """
        return None

    def contains(self, features: Tensor) -> Tensor:
        """Return which rows of features (n x d_in) the expansion holds (n,): such rows cannot be forgotten."""
        return torch.zeros(len(features), dtype=torch.bool)

    def fingerprint(self) -> str:
        """Return a hash of all numbers in the expansion: equal hashes mean equal expansions."""
        digest = hashlib.sha256(self.name.encode())
        for name, buffer in sorted(self.state_dict().items()):
            digest.update(f"{name}{tuple(buffer.shape)}".encode())
            digest.update(np.ascontiguousarray(buffer.cpu().numpy()).data)
        return digest.hexdigest()


expansions: Registry[type[Expansion]] = Registry("expansion", group="dsal.expansions")


@expansions.register("random")
class RandomProjection(Expansion):
    """B(x) = x X_B, entries of X_B uniform in +-1/sqrt(d_in), no bias: the paper's choice."""

    name = "random"

    @classmethod
    def build(cls, features: int, size: int, seed: int, rows: Tensor, **options: Any) -> RandomProjection:
        bound = 1.0 / math.sqrt(features)
        # RandomState: the only generator whose numbers NumPy guarantees never to change
        return cls(torch.from_numpy(np.random.RandomState(seed).uniform(-bound, bound, (features, size))))

    def forward(self, features: Tensor, product: Product = torch.matmul) -> Tensor:
        return product(features, self.projection)

    def rounding(self) -> Rounding:
        size = self.projection.norm()
        return lambda features, _: size * features.norm(dim=1)


@expansions.register("gaussian")
class GaussianKernel(Expansion):
    """B_j(x) = exp(-|x - c_j|^2 / (2 width^2)), centres c_j picked from the first phase (GKEAL).

    The width is the median distance between rows of the first phase (at most 1000), times the option ``width``.
    Centres are features of real samples, so a model with this expansion contains some of its data.
    """

    name = "gaussian"
    wants_rows = True

    width: Tensor

    def __init__(self, projection: Tensor, width: Tensor) -> None:
        super().__init__(projection)
        self.register_buffer("width", width)

    @classmethod
    def build(
        cls, features: int, size: int, seed: int, rows: Tensor, width: float = 1.0, **options: Any
    ) -> GaussianKernel:
        if len(rows) < size:
            raise InputError(
                f"expansion='gaussian' takes its centres from the first phase, which has {len(rows)} different rows: "
                f"expansion_size={size} is too large"
            )
        distances = torch.pdist(rows[:1000])
        median = distances.median() if len(distances) else torch.ones((), dtype=rows.dtype)
        if median == 0:
            raise InputError("expansion='gaussian': most rows of the first phase are equal, so the kernel width is 0")
        return cls(rows[:size].T.contiguous(), width * median)

    def forward(self, features: Tensor, product: Product = torch.matmul) -> Tensor:
        products = product(features, self.projection)
        squared = -2.0 * products + (features**2).sum(1, keepdim=True) + (self.projection**2).sum(0)
        return torch.exp(squared.clamp_min(0.0) / (-2.0 * self.width**2))

    def rounding(self) -> Rounding:
        # an error e in a squared distance changes the kernel by the factor exp(-e / (2 width^2))
        farthest, scale = (self.projection**2).sum(0).max(), 2.0 / self.width**2
        return lambda features, sizes: ((features**2).sum(1) + farthest) * scale * sizes

    def contains(self, features: Tensor) -> Tensor:
        centres = {centre.tobytes() for centre in np.ascontiguousarray((self.projection.T + 0.0).cpu().numpy())}
        return torch.tensor([row.tobytes() in centres for row in (features + 0.0).cpu().numpy()], dtype=torch.bool)
