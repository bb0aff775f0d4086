"""The cost of a phase: flops, bytes and, from measured rates, seconds (used in docs/distributed.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Rates of a machine, each measured separately."""

    accumulate: float  # flops/s of one rank while it adds rows to its sums
    factor: float  # flops/s of rank 0 while the others wait
    reduce: float  # bytes/s of sums sent to rank 0
    broadcast: float  # bytes/s of weights sent back


@dataclass(frozen=True)
class PhaseCost:
    """One phase, in numbers.

    >>> base = PhaseCost(rows=640_000, size=16384, classes=500, present=500)  # half of ImageNet
    >>> f"{base.reduced_bytes / 1e9:.2f} GB reduced, {base.broadcast_bytes / 1e9:.2f} GB broadcast"
    '2.28 GB reduced, 0.13 GB broadcast'
    """

    rows: int
    size: int  # d_B
    classes: int  # seen, including those of the phase
    present: int  # classes of the phase
    features: int = 512  # d_in
    streams: int = 2
    first: bool = False

    @property
    def reduced_bytes(self) -> int:
        """Bytes of the triangle of G and the phase's columns of Q, over all streams."""
        return 8 * self.streams * (self.size * (self.size + 1) // 2 + self.size * self.present)

    @property
    def broadcast_bytes(self) -> int:
        """Bytes of W, over all streams."""
        return 8 * self.streams * self.size * self.classes

    @property
    def flops_per_row(self) -> float:
        """Flops for expansion, G and Q of each stream, and for the residue between them."""
        stream = 2 * self.features * self.size + self.size**2 + 2 * self.size * self.present
        return self.streams * stream + (self.streams - 1) * 2 * self.size * self.present

    @property
    def flops_at_the_end(self) -> float:
        """Flops for the product of the old factor (if any), Cholesky and W, over all streams."""
        squarings = 1 if self.first else 2
        return self.streams * (squarings * self.size**3 / 3 + 2 * self.size**2 * self.classes)

    def seconds(self, ranks: int, rates: Rates) -> float:
        """Return the time of the phase: rows in parallel, the rest sequentially."""
        seconds = -(-self.rows // ranks) * self.flops_per_row / rates.accumulate
        seconds += self.flops_at_the_end / rates.factor
        if ranks > 1:
            seconds += self.reduced_bytes / rates.reduce + self.broadcast_bytes / rates.broadcast
        return seconds
