"""Expansions: the same numbers everywhere, and the kernel as defined."""

import numpy as np
import pytest
import torch
from tests.oracle import Rows

from dsal.analytic.expansion import GaussianKernel, RandomProjection, expansions
from dsal.errors import InputError, UnknownNameError
from dsal.linalg.backend import Lapack

NO_ROWS = torch.empty(0, 64, dtype=torch.float64)


def test_the_random_projection_never_changes() -> None:
    """Pinned numbers: a model trained elsewhere, or years ago, has the same projection."""
    projection = RandomProjection.build(64, 2048, seed=1, rows=NO_ROWS).projection
    assert projection.shape == (64, 2048)
    assert projection.dtype == torch.float64
    np.testing.assert_allclose(projection[0, :3], [-0.0207444987, 0.0550811234, -0.1249714063], atol=1e-9)
    assert projection.abs().max() <= 1 / 8
    assert abs(float(projection.var()) - (1 / 4) ** 2 / 12) < 1e-4  # uniform
    other = RandomProjection.build(64, 2048, seed=2, rows=NO_ROWS)
    assert not torch.equal(other.projection, projection)


def test_fingerprints_tell_expansions_apart() -> None:
    prints = {RandomProjection.build(64, size, seed, NO_ROWS).fingerprint() for size in (8, 16) for seed in (0, 1)}
    assert len(prints) == 4
    again = RandomProjection.build(64, 8, 0, NO_ROWS)
    assert again.fingerprint() in prints
    kernel = GaussianKernel(again.projection, torch.tensor(1.0))
    assert kernel.fingerprint() != GaussianKernel(again.projection, torch.tensor(2.0)).fingerprint()
    assert kernel.fingerprint() not in prints


def test_the_gaussian_kernel(rows: Rows) -> None:
    centres = torch.tensor(rows.x[:50])
    kernel = GaussianKernel.build(64, 50, seed=0, rows=centres)
    distances = np.linalg.norm(rows.new[:, None] - rows.x[None, :50], axis=2)
    pairs = np.linalg.norm(rows.x[:50, None] - rows.x[None, :50], axis=2)[np.triu_indices(50, 1)]
    width = float(kernel.width)
    assert (pairs <= width).mean() == pytest.approx(0.5, abs=0.01)
    expected = np.exp(-(distances**2) / (2 * width**2))
    np.testing.assert_allclose(kernel(torch.tensor(rows.new)), expected, atol=1e-12)
    np.testing.assert_allclose(kernel(torch.tensor(rows.new), Lapack().product), expected, atol=1e-12)


def test_a_kernel_needs_centres_and_a_width() -> None:
    with pytest.raises(InputError, match="3 different rows: expansion_size=4"):
        GaussianKernel.build(2, 4, seed=0, rows=torch.eye(3, 2, dtype=torch.float64))
    with pytest.raises(InputError, match="the kernel width is 0"):
        GaussianKernel.build(2, 3, seed=0, rows=torch.ones(3, 2, dtype=torch.float64))


def test_expansions_by_name() -> None:
    assert expansions.get("random") is RandomProjection
    assert expansions.get("gaussian") is GaussianKernel
    with pytest.raises(UnknownNameError, match="did you mean 'gaussian'"):
        expansions.get("gausian")
