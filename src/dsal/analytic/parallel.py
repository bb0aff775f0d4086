"""Learn one phase on all ranks: sums over rows are reduced on rank 0, which factors them and broadcasts the weights.

Per stream of width d with c classes, k of them in the phase, 8 (d (d + 1) / 2 + k d) bytes are reduced and 8 c d are
broadcast. Rank 0 adds its rows to G + gamma I of all phases, while the others sum only their rows of this phase in
their own squares. So no rank needs memory beyond the square it has anyway and two chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from dsal.analytic.ridge import Blocks, Ridge
from dsal.analytic.rows import Block
from dsal.distributed.team import Team

CHUNK_BYTES = 2**26  # per message: large enough to hide network latency, small compared with a square


def update(ridge: Ridge, blocks: Blocks, rows: int, columns: Tensor, team: Team) -> None:
    """Learn the rows of one phase, which are divided among the ranks; see :meth:`dsal.analytic.ridge.Ridge.update`.

    Args:
        ridge: the state, on rank 0; on the others it ends up with the weights only.
        blocks: this rank's rows, possibly none: pairs of X, which may be destroyed, and Y.
        rows: total number of rows on all ranks.
        columns: the columns of Q to which the columns of Y belong.
        team: all ranks; each must call this function.
    """
    if team.size == 1:
        ridge.update(blocks, rows, columns)
        return
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
    """Yield the square, zeroed for sums over this phase's rows alone; Q is zeroed too."""
    ridge.targets.zero_()
    yield ridge.square.zero_()


def own_rows(blocks: Iterable[Block], team: Team) -> Iterator[Block]:
    """Yield this rank's rows, joined over several blocks so that they are as large as the blocks read."""
    pending: list[Block] = []
    for block in blocks:
        pending.append(block.cut(team.share(len(block.features))))
        if len(pending) == team.size:
            yield from _nonempty(pending)
            pending = []
    yield from _nonempty(pending)


def _nonempty(blocks: list[Block]) -> Iterator[Block]:
    """Yield one block with all rows; nothing if there are none."""
    if any(len(block.columns) for block in blocks):
        yield Block.joined(blocks)


def reduce_triangle_(square: Tensor, team: Team, chunk_bytes: int = CHUNK_BYTES) -> None:
    """Sum the triangle on and above the diagonal over all ranks, on rank 0, in place: one chunk of columns at a time.

    Args:
        square: (d x d), row- or column-major.
        team: all ranks.
        chunk_bytes: size of a message.
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
    """Return how many columns of d numbers fit into a chunk."""
    return max(chunk_bytes // (8 * d), 1)
