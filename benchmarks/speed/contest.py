"""The data and the contestants: our streams, the authors' recursion, and the BLAS and LAPACK calls alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.data import FeatureSet, load_features
from dsal.methods.closed_form.ds_al import DSAL

GAMMA, RATIO = 0.1, 0.6
BATCH = 4096  # rows per batch in the authors' code

Array = NDArray[Any]


class Phase(NamedTuple):
    """Rows to learn, and their classes."""

    x: Array  # (n x d_in) float32
    y: NDArray[np.int64]  # (n,)
    classes: range


def load(small: bool) -> FeatureSet:
    """Load real features: CIFAR-100 through a ResNet-32, all rows or a tenth."""
    data = load_features("cifar100-features")
    if not small:
        return data
    return FeatureSet(
        **{**vars(data), "train_x": data.train_x[::10], "train_y": data.train_y[::10]},
    )


def phase_of(data: FeatureSet, classes: range, rows: int | None = None) -> Phase:
    """Return all rows of some classes in the order of the data set, or only the first ones."""
    chosen = np.flatnonzero((data.train_y >= classes.start) & (data.train_y < classes.stop))[:rows]
    return Phase(data.train_x[chosen], data.train_y[chosen], classes)


def test_rows(data: FeatureSet, seen: int) -> tuple[Array, NDArray[np.int64]]:
    """Return the test samples of the classes seen."""
    chosen = data.test_y < seen
    return data.test_x[chosen], data.test_y[chosen]


def ours(size: int) -> DSAL:
    """Return our method with the paper's values."""
    return DSAL(expansion_size=size, gamma=GAMMA, compensation=RATIO, seed=0)


class Recursion:
    """Eqs. (11), (12) in the order of operations of the authors' code: float64 torch, explicit inverses, from the left.

    As in that code, compensation learns each batch against weights that have seen only the batches so far.
    """

    def __init__(self, projection: Tensor) -> None:
        self.projection = projection  # (d_in x d_B) float64
        size = projection.shape[1]
        self.r = [torch.eye(size, dtype=torch.float64) / GAMMA for _ in range(2)]
        self.w = [torch.zeros(size, 0, dtype=torch.float64) for _ in range(2)]

    def learn_batch(self, x: Array, y: NDArray[np.int64], classes: range) -> None:
        """Learn some rows of a phase."""
        z = torch.from_numpy(x).double() @ self.projection
        main, comp = torch.relu(z), torch.tanh(z)
        targets = torch.nn.functional.one_hot(torch.from_numpy(y), classes.stop).double()
        self._fit(0, main, targets)
        residue = targets - main @ self.w[0]
        residue[:, : classes.start] = 0.0
        self._fit(1, comp, residue)

    def predict(self, x: Array) -> NDArray[np.int64]:
        """Return the best class of each row, in float64, batch by batch."""
        best = []
        for rows in torch.from_numpy(x).double().split(BATCH):
            z = rows @ self.projection
            best.append((torch.relu(z) @ self.w[0] + RATIO * (torch.tanh(z) @ self.w[1])).argmax(1))
        return torch.cat(best).numpy()

    def _fit(self, stream: int, x: Tensor, y: Tensor) -> None:
        new = torch.zeros(len(self.w[stream]), y.shape[1] - self.w[stream].shape[1], dtype=torch.float64)
        w, r = torch.cat([self.w[stream], new], dim=1), self.r[stream]
        inner = torch.inverse(torch.eye(len(x), dtype=torch.float64) + x @ r @ x.T)
        r -= r @ x.T @ inner @ x @ r
        self.w[stream] = w + r @ x.T @ (y - x @ w)


class Official:
    """The authors' own classes, from a copy of their repository, with our expansion, so that results are comparable."""

    def __init__(self, folder: Path, projection: Tensor) -> None:
        sys.path.insert(0, str(folder))
        from analytic.DSAL import DSAL as Theirs  # type: ignore[import-not-found]

        size = projection.shape[1]
        self.model = Theirs(projection.shape[0], torch.nn.Identity(), size, GAMMA, GAMMA, RATIO)
        self.model.buffer.weight.copy_(projection.T)

    def learn_batch(self, x: Array, y: NDArray[np.int64], classes: range) -> None:
        """Learn some rows of a phase."""
        self.model.fit(torch.from_numpy(x).double(), torch.from_numpy(y), len(classes))
        self.model.update()

    def predict(self, x: Array) -> NDArray[np.int64]:
        """Return the best class of each row."""
        batches = torch.from_numpy(x).double().split(BATCH)
        return torch.cat([self.model(rows).argmax(1) for rows in batches]).numpy()


def bare_calls(size: int, d_in: int, block: int) -> Callable[[int, int, bool], None]:
    """Return a function that makes only the BLAS and LAPACK calls of one phase in both streams, on arbitrary numbers.

    Returns:
        A function of (rows, classes, first): products of the expansion (twice), symmetric updates and Cholesky in the
        first phase, triangular updates later, sums of targets, and the solves for all classes.
    """
    from scipy.linalg import blas, lapack

    random = np.random.RandomState(0)
    square = np.zeros((size, size), order="F")
    projection, x = random.standard_normal((d_in, size)), random.standard_normal((block, d_in))
    expanded = np.asfortranarray(random.standard_normal((block, size)))

    def run(rows: int, classes: int, first: bool) -> None:
        y = np.asfortranarray(random.standard_normal((block, classes)))
        targets = np.asfortranarray(random.standard_normal((size, classes)))
        for _ in range(2):
            np.fill_diagonal(square, 1e4 if first else 1e2)
            for start, stop in pairwise([*range(0, rows, block), rows]):
                n = stop - start
                part = np.array(expanded[:n], order="F")
                blas.dgemm(1.0, x[:n].T, projection.T, trans_a=1, trans_b=1)
                blas.dgemm(1.0, part, y[:n], trans_a=1)
                if first:
                    blas.dsyrk(1.0, part, beta=1.0, c=square, trans=1, overwrite_c=1)
                else:
                    lapack.dtpqrt(0, min(64, size), square, part, overwrite_a=1, overwrite_b=1)
            if first:
                lapack.dpotrf(square, clean=0, overwrite_a=1)
            lapack.dpotrs(square, targets)

    return run


def batches(phase: Phase, size: int = BATCH) -> Iterator[Phase]:
    """Yield a phase in the batches of the authors' code."""
    for start in range(0, len(phase.y), size):
        yield Phase(phase.x[start : start + size], phase.y[start : start + size], phase.classes)
