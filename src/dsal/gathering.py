"""One phase learned by all ranks: sums of rows meet on rank 0, which alone factors them; all get the weights.

Per stream of width d with c classes, k of them in the phase, 8 (d (d + 1) / 2 + k d) bytes are reduced and 8 c d are
broadcast. Rank 0 has G + gamma I of all phases in place while the others sum up their rows of this one, so nobody holds
more than the square that it has anyway, and two chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from dsal.distributed.team import Team
from dsal.ridge import Blocks, Ridge
from dsal.rows import Block

CHUNK_BYTES = 2**26  # handed over at once: much beside the latency of a network, little beside a square


def update_together(ridge: Ridge, blocks: Blocks, columns: Tensor, team: Team) -> None:
    """Learn the rows of one phase, of which every rank brings some; see :meth:`dsal.ridge.Ridge.update`.

    Args:
        ridge: the state, on rank 0; on the others it ends up with the weights alone.
        blocks: this rank's rows, perhaps none: pairs of X, which may be destroyed, and Y.
        columns: which columns of Q the columns of Y are.
        team: all ranks, each of which calls this.
    """
    ridge.carried = ridge.solved = None
    with ridge.as_gram() if team.leads else _zeroed(ridge) as gram:
        for x, y in blocks:
            ridge.add_targets(x, y, columns)
            ridge.backend.add_rows_to_gram_(gram, x)
        reduce_triangle_(gram, team)
        for some in columns.split(_per_chunk(len(gram))):
            sums = ridge.targets.T[some]  # (some x d): a copy
            team.reduce_(sums)
            ridge.targets.T[some] = sums
    ridge.empty = not team.leads
    weights = ridge.weights().T.contiguous() if team.leads else torch.empty_like(ridge.targets.T)
    team.broadcast_(weights)
    ridge.solved = weights.T


@contextmanager
def _zeroed(ridge: Ridge) -> Iterator[Tensor]:
    """Offer the square for sums of this phase's rows alone; Q starts from zero too."""
    ridge.targets.zero_()
    yield ridge.square.zero_()


def share(blocks: Iterable[Block], team: Team) -> Iterator[Block]:
    """This rank's rows of each block; of several blocks together, so that they are as large as those read."""
    held: list[Block] = []
    for block in blocks:
        held.append(block.cut(team.share(len(block.features))))
        if len(held) == team.size:
            yield from _joined(held)
            held = []
    yield from _joined(held)


def reduce_triangle_(square: Tensor, team: Team, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Sum the triangle above the diagonal (included) over all ranks, on rank 0, in place: a chunk of columns at a time.

    Args:
        square: (d x d), row- or column-major.
        team: all ranks.
        chunk_bytes: handed over at once.
    """
    d, width = len(square), _per_chunk(len(square), chunk_bytes)
    for start in range(0, d, width):
        stop = min(start + width, d)
        above, corner = square[:start, start:stop].T, square[start:stop, start:stop]
        upper = torch.ones(corner.shape, dtype=torch.bool, device=square.device).triu()
        packed = torch.cat([above.flatten(), corner[upper]])
        team.reduce_(packed)
        above.copy_(packed[: above.numel()].view(above.shape))
        corner[upper] = packed[above.numel() :]


def _per_chunk(d: int, chunk_bytes: int = CHUNK_BYTES) -> int:
    """Columns of d numbers that fit into a chunk."""
    return max(chunk_bytes // (8 * d), 1)


def _joined(blocks: list[Block]) -> Iterator[Block]:
    """One block of all their rows; none where there are none."""
    if len(blocks) > 1:
        features, columns = torch.cat([b.features for b in blocks]), torch.cat([b.columns for b in blocks])
        plain = all(b.weight is None for b in blocks)
        weights = [torch.ones_like(b.features[:, 0]) if b.weight is None else b.weight for b in blocks]
        blocks = [Block(features, columns, None if plain else torch.cat(weights))]
    yield from (block for block in blocks if len(block.columns))
