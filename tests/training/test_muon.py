"""Muon: what its orthogonalisation promises."""

from __future__ import annotations

import pytest
import torch

from dsal.training.optimiser import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(16, 27), (64, 576), (50, 9)])
def test_singular_values_end_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    u, s, vt = torch.linalg.svd(orthogonalise(matrix, steps=5), full_matrices=False)
    assert ((s > 0.6) & (s < 1.3)).all()
    before, _, beside = torch.linalg.svd(matrix, full_matrices=False)
    torch.testing.assert_close(u @ vt, before @ beside, atol=1e-3, rtol=0)


def test_a_step_keeps_the_norm_it_promises_and_descends() -> None:
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(8, 3, 3, 3))
    target = torch.randn(8, 3, 3, 3)
    target *= 8**0.5 / target.norm()
    optimiser = Muon([weight], lr=0.1)
    distances = []
    for _ in range(60):
        distance = (weight - target).square().sum()
        distances.append(distance.item())
        optimiser.zero_grad()
        distance.backward()
        optimiser.step()
        optimiser.param_groups[0]["lr"] *= 0.93
    assert distances[-1] < 0.05 * distances[0]
    assert abs(weight.norm().item() / 8**0.5 - 1) < 0.05
