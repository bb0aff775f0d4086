"""Count floating-point operations: in the authors' order of operations, and in ours."""

from __future__ import annotations


def recursion_batch(n: int, d: int, c: int) -> float:
    """Count one batch of n rows in one stream: X R X^T and its inverse; R X^T K X R from the left; then W."""
    inner = 2 * n * d * d + 2 * n * n * d + 2 * n**3
    outer = 2 * n * d * d + 2 * n * n * d + 2 * n * d * d + 2 * d**3
    weights = 2 * n * d * d + 4 * n * d * c
    return inner + outer + weights


def recursion_phase(rows: int, d: int, c: int, batch: int) -> float:
    """Count a phase in both streams."""
    full, rest = divmod(rows, batch)
    return 2 * (full * recursion_batch(batch, d, c) + (recursion_batch(rest, d, c) if rest else 0.0))


def our_phase(rows: int, d: int, c: int, first: bool) -> float:
    """Count a phase in both streams: symmetric update and Cholesky, or a triangular update; then the solves."""
    update = rows * d * d + d**3 / 3 if first else 2 * rows * d * d
    return 2 * (update + 2 * d * d * c + 2 * rows * d * c)


def ratio(d: int, phases: int, rows: int = 25_000, base: int = 50, batch: int = 4096) -> float:
    """Return the authors' count over ours, for a base phase and K phases with as many rows and classes in total.

    >>> round(ratio(8192, 25), 1), round(ratio(8192, 50), 1)
    (12.1, 16.3)
    """
    c = base + base // 2  # on average over the phases
    theirs = recursion_phase(rows, d, base, batch) + phases * recursion_phase(rows // phases, d, c, batch)
    return theirs / (our_phase(rows, d, base, True) + phases * our_phase(rows // phases, d, c, False))
