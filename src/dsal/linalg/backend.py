"""In-place dense linear algebra for the ridge regression, on BLAS and LAPACK or on torch.

Two backends share the same methods. :class:`Lapack` runs on the CPU with SciPy's BLAS, which writes directly into the
memory of the tensors; :class:`Torch` runs on every other device with plain torch code. All matrices are float64 unless
stated otherwise. A *square* is a d x d matrix of which only the triangle on and above the diagonal is meaningful:
either a Gram matrix G, or its Cholesky factor U with U^T U = G.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.errors import InputError
from dsal.linalg import lapack, tiled

Array = NDArray[Any]
LinAlgError = np.linalg.LinAlgError


class Backend(ABC):
    """The operations that a ``Ridge`` needs. Methods ending in ``_`` change their first argument."""

    device: torch.device
    squares: int  # peak number of squares in memory while one is updated

    @abstractmethod
    def square(self, d: int) -> Tensor:
        """Return a d x d square of zeros."""

    @abstractmethod
    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return A B, for A (n x k) and B (k x m) in float64 or float32: 2 n k m flops."""

    @abstractmethod
    def add_rows_to_gram_(self, gram: Tensor, rows: Tensor, sign: float = 1.0) -> None:
        """G <- G + sign * X^T X, for X (n x d): n d^2 flops."""

    @abstractmethod
    def add_rows_to_factor_(self, factor: Tensor, rows: Tensor) -> None:
        """U <- the triangular factor of [U; X], for X (n x d), which is destroyed: 2 n d^2 flops."""

    @abstractmethod
    def add_factor_to_gram_(self, gram: Tensor, factor: Tensor) -> None:
        """G <- G + U^T U: d^3/3 flops."""

    @abstractmethod
    def factor_(self, gram: Tensor) -> None:
        """G <- U with U^T U = G: d^3/3 flops. Raises ``LinAlgError`` if G is not positive definite."""

    @abstractmethod
    def unfactor_(self, factor: Tensor) -> None:
        """U <- U^T U: d^3/3 flops."""

    @abstractmethod
    def solve(self, factor: Tensor, b: Tensor) -> Tensor:
        """Return (U^T U)^-1 B, for B (d x m): 2 d^2 m flops."""

    @abstractmethod
    def condition(self, factor: Tensor) -> float:
        """Return an estimate of the condition number of U^T U in the 1-norm."""

    @abstractmethod
    def spectrum(self, gram: Tensor) -> tuple[Tensor, Tensor]:
        """Return the eigenvalues (d,), ascending, and eigenvectors (d x d, in columns) of G.

        About 9 d^3 flops, and 3 more squares.
        """

    @abstractmethod
    def backup_(self, square: Tensor) -> Tensor:
        """Save the triangle, for :meth:`restore_` to bring back bit for bit."""

    @abstractmethod
    def restore_(self, square: Tensor, copy: Tensor) -> None:
        """Undo all changes to the triangle since :meth:`backup_` returned ``copy``."""

    def discard_(self, square: Tensor) -> None:
        """Overwrite any copy that :meth:`backup_` has left in the square's own memory."""
        return

    @abstractmethod
    def pack(self, square: Tensor) -> Array:
        """Return the triangle column by column, d (d + 1) / 2 numbers."""

    @abstractmethod
    def unpack(self, packed: Array, d: int) -> Tensor:
        """Return the square whose triangle is ``packed``."""


class Lapack(Backend):
    """SciPy's BLAS and LAPACK on CPU tensors.

    Squares are column-major, so LAPACK works in place and without copies. It never touches the triangle below the
    diagonal, which :meth:`backup_` uses.
    """

    device = torch.device("cpu")
    squares = 1

    def square(self, d: int) -> Tensor:
        return torch.from_numpy(np.zeros((d, d), order="F"))  # untouched pages take no memory yet

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.from_numpy(tiled.product(a.numpy(), b.numpy()))

    def add_rows_to_gram_(self, gram: Tensor, rows: Tensor, sign: float = 1.0) -> None:
        tiled.add_rows_(gram.numpy(), rows.numpy(), sign)

    def add_rows_to_factor_(self, factor: Tensor, rows: Tensor) -> None:
        if len(rows) == 1:
            tiled.add_row_(factor, rows[0])
        else:
            tiled.fold_in_(factor.numpy(), np.asfortranarray(rows.numpy()))

    def add_factor_to_gram_(self, gram: Tensor, factor: Tensor) -> None:
        tiled.add_factor_(gram.numpy(), np.asfortranarray(factor.numpy()))

    def factor_(self, gram: Tensor) -> None:
        if not tiled.factor_(gram.numpy()) or not torch.isfinite(gram.diagonal()).all():
            raise LinAlgError("not positive definite")

    def unfactor_(self, factor: Tensor) -> None:
        tiled.unfactor_(factor.numpy())

    def solve(self, factor: Tensor, b: Tensor) -> Tensor:
        from scipy.linalg import blas

        if b.shape[1] == 1:  # measured: less than half the time of the general solve
            u = factor.numpy()
            y = blas.dtrsv(u, blas.dtrsv(u, b[:, 0].numpy(), trans=1))
            return torch.from_numpy(y)[:, None]
        x = np.array(b.numpy(), order="F")
        tiled.solve_(factor.numpy(), x)
        return torch.from_numpy(x)

    def condition(self, factor: Tensor) -> float:
        from scipy.linalg import blas, lapack
        from scipy.sparse.linalg import LinearOperator, onenormest

        u = factor.numpy()

        def gram_times(x: Array) -> Array:
            return blas.dtrmm(1.0, u, blas.dtrmm(1.0, u, x), trans_a=1)  # type: ignore[no-any-return]

        gram = LinearOperator(u.shape, matvec=gram_times, matmat=gram_times, rmatmat=gram_times, dtype=np.float64)
        reciprocal, _ = lapack.dpocon(u, onenormest(gram))
        return float(1.0 / reciprocal) if reciprocal > 0 else float("inf")

    def spectrum(self, gram: Tensor) -> tuple[Tensor, Tensor]:
        from scipy.linalg import eigh

        values, vectors = eigh(gram.numpy(), lower=False, driver="evd", check_finite=False)
        return torch.from_numpy(values), torch.from_numpy(vectors)

    def backup_(self, square: Tensor) -> Tensor:
        """Copy column j of the triangle into column d-2-j below the diagonal, where as many entries are free.

        This safety copy takes no extra memory; only the last column does not fit and is returned.
        """
        a = square.numpy()
        d = len(a)
        for j in range(d - 1):
            a[d - 1 - j :, d - 2 - j] = a[: j + 1, j]
        return square[:, -1].clone()

    def restore_(self, square: Tensor, copy: Tensor) -> None:
        a = square.numpy()
        d = len(a)
        for j in range(d - 1):
            a[: j + 1, j] = a[d - 1 - j :, d - 2 - j]
        square[:, -1] = copy

    def discard_(self, square: Tensor) -> None:
        a = square.numpy()
        for j in range(len(a)):
            a[j + 1 :, j] = 0.0

    def pack(self, square: Tensor) -> Array:
        packed = np.empty(len(square) * (len(square) + 1) // 2)
        lapack.pack_(packed, square.numpy())
        return packed

    def unpack(self, packed: Array, d: int) -> Tensor:
        square = self.square(d)
        lapack.unpack_(square.numpy(), np.ascontiguousarray(packed, dtype=np.float64))
        return square


class Torch(Backend):
    """Plain torch on any device that supports float64, with full squares instead of triangles."""

    squares = 4  # the square itself, its safety copy, and two that torch allocates for a factorisation

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def square(self, d: int) -> Tensor:
        return torch.zeros(d, d, dtype=torch.float64, device=self.device)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def add_rows_to_gram_(self, gram: Tensor, rows: Tensor, sign: float = 1.0) -> None:
        gram.addmm_(rows.T, rows, alpha=sign)

    def add_rows_to_factor_(self, factor: Tensor, rows: Tensor) -> None:
        factor.copy_(torch.linalg.qr(torch.cat([factor, rows]), mode="r").R)

    def add_factor_to_gram_(self, gram: Tensor, factor: Tensor) -> None:
        u = factor.triu()  # it may come from LAPACK, with arbitrary values below the diagonal
        gram.addmm_(u.T, u)

    def factor_(self, gram: Tensor) -> None:
        factor, info = torch.linalg.cholesky_ex(gram, upper=True)
        if info != 0 or not torch.isfinite(factor.diagonal()).all():
            raise LinAlgError("not positive definite")
        gram.copy_(factor)

    def unfactor_(self, factor: Tensor) -> None:
        factor.copy_(factor.T @ factor)

    def solve(self, factor: Tensor, b: Tensor) -> Tensor:
        return torch.cholesky_solve(b, factor, upper=True)

    def condition(self, factor: Tensor) -> float:
        return float(torch.linalg.cond(factor.T @ factor, p=1))

    def spectrum(self, gram: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(gram, UPLO="U")
        return values, vectors

    def backup_(self, square: Tensor) -> Tensor:
        return square.clone()

    def restore_(self, square: Tensor, copy: Tensor) -> None:
        square.copy_(copy)

    def pack(self, square: Tensor) -> Array:
        return Lapack().pack(square.T.contiguous().cpu().T)

    def unpack(self, packed: Array, d: int) -> Tensor:
        return torch.triu(Lapack().unpack(packed, d)).to(self.device)


def backend_for(device: str | torch.device) -> Backend:
    """Return the backend of a device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` ..., or ``"auto"`` (CUDA if available).

    >>> type(backend_for("cpu")).__name__
    'Lapack'
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
        if resolved.type == "cpu":
            return Lapack()
        torch.empty(0, dtype=torch.float64, device=resolved)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        hint = "use 'auto', 'cpu' or a device that supports float64"
        raise InputError(f"device {device!r} cannot be used: {error}; {hint}") from error
    return Torch(resolved)
