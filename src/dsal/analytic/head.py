"""The learned classifier as a ``torch.nn.Module``: features to logits, eq. (19)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from dsal.analytic.activations import Activation
from dsal.analytic.combine import combined
from dsal.analytic.expansion import Expansion, Product

Apply = Callable[[Activation, Tensor], Tensor]


class AnalyticHead(nn.Module):
    """logits = sigma_M(B(F)) W_M + C sigma_C(B(F)) W_C; it can be put behind a backbone, traced and exported.

    Args:
        expansion: B.
        main_activation: sigma_M.
        main: W_M (d_B x classes).
        activation: sigma_C.
        comp: W_C (d_B x classes), or None for the main stream alone.
        compensation: C.
        classes: the label of each column of the logits.
    """

    main: Tensor
    comp: Tensor | None

    def __init__(
        self,
        expansion: Expansion,
        *,
        main_activation: Activation,
        main: Tensor,
        activation: Activation,
        comp: Tensor | None,
        compensation: float,
        classes: list[object],
    ) -> None:
        super().__init__()
        self.expansion = expansion
        self.main_activation, self.activation = main_activation, activation
        self.register_buffer("main", main)
        self.register_buffer("comp", comp)
        self.compensation, self.classes = compensation, classes

    def forward(self, features: Tensor, product: Product = torch.matmul, apply: Apply | None = None) -> Tensor:
        """Return the logits (n x classes) of features (n x d_in).

        Args:
            features: of any floating-point type.
            product: the matrix product to use.
            apply: how to apply an activation; a plain call by default; ``activations.apply`` also checks it.
        """
        return self.scores(self.expansion(features.to(self.main.dtype), product), product, apply)

    def scores(self, z: Tensor, product: Product = torch.matmul, apply: Apply | None = None) -> Tensor:
        """Return the logits (n x classes) of expanded features z (n x d_B); arguments as in :meth:`forward`."""
        main = product(self._activated(self.main_activation, z, apply), self.main)
        if self.comp is None or not self.compensation:
            return main
        return combined(main, product(self._activated(self.activation, z, apply), self.comp), self.compensation)

    def copied(self, dtype: torch.dtype) -> AnalyticHead:
        """Return an independent copy in another precision."""
        return deepcopy(self).to(dtype)

    @staticmethod
    def _activated(activation: Activation, z: Tensor, apply: Apply | None) -> Tensor:
        return activation(z) if apply is None else apply(activation, z)
