"""What a phase costs: flops, bytes and, from measured rates, seconds (docs/distributed.md shows it at work)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """What a machine was measured to do, of each kind on its own."""

    accumulate: float  # flops/s of one rank that adds rows to its sums
    factor: float  # flops/s of rank 0 while the others wait
    reduce: float  # bytes/s of sums on their way to rank 0
    broadcast: float  # bytes/s of weights on their way back


@dataclass(frozen=True)
class PhaseCost:
    """One phase, in numbers.

    >>> base = PhaseCost(rows=640_000, size=16384, classes=500, present=500)  # half of ImageNet
    >>> f"{base.reduced_bytes / 1e9:.2f} GB reduced, {base.broadcast_bytes / 1e9:.2f} GB broadcast"
    '2.28 GB reduced, 0.13 GB broadcast'
    """

    rows: int
    size: int  # d_B
    classes: int  # seen, with those of the phase
    present: int  # classes of the phase
    features: int = 512  # d_in
    streams: int = 2
    first: bool = False

    @property
    def reduced_bytes(self) -> int:
        """The triangle of G and the phase's columns of Q, of each stream."""
        return 8 * self.streams * (self.size * (self.size + 1) // 2 + self.size * self.present)

    @property
    def broadcast_bytes(self) -> int:
        """W of each stream."""
        return 8 * self.streams * self.size * self.classes

    @property
    def flops_per_row(self) -> float:
        """Expansion, G and Q of each stream; and the residue between them."""
        stream = 2 * self.features * self.size + self.size**2 + 2 * self.size * self.present
        return self.streams * stream + (self.streams - 1) * 2 * self.size * self.present

    @property
    def flops_at_the_end(self) -> float:
        """Cholesky, before it the product of the old factor, and W; of each stream."""
        squarings = 1 if self.first else 2
        return self.streams * (squarings * self.size**3 / 3 + 2 * self.size**2 * self.classes)

    def seconds(self, ranks: int, rates: Rates) -> float:
        """Time of the phase: rows side by side, the rest one after the other."""
        seconds = -(-self.rows // ranks) * self.flops_per_row / rates.accumulate
        seconds += self.flops_at_the_end / rates.factor
        if ranks > 1:
            seconds += self.reduced_bytes / rates.reduce + self.broadcast_bytes / rates.broadcast
        return seconds
