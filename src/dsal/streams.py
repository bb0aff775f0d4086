"""The two streams of DS-AL: a main ridge, and a compensation ridge that learns what the main one leaves over.

    main            X_M = sigma_M(B(F))  learns  Y                            eqs. (7), (11), (12)
    compensation    X_C = sigma_C(B(F))  learns  Y - X_M W_M, cleansed        eqs. (13)-(18)
    output          X_M W_M + C X_C W_C                                       eq. (19)

A phase is read twice: the residue is taken against the weights at the *end* of the phase, as in the paper, so neither
the batch size nor the order of rows inside a phase changes what is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from dsal.activations import Activation, apply
from dsal.blas import Array, Backend
from dsal.distributed import current
from dsal.distributed.phase import update_together
from dsal.errors import InputError
from dsal.expansion import Expansion
from dsal.memory import require
from dsal.ridge import Blocks, Ridge, bytes_needed

_BLOCK_BYTES = 2**25  # of one block of expanded rows: large enough for BLAS, small beside the squares


class Block(NamedTuple):
    """Some rows of a phase."""

    features: Tensor  # (n x d_in) float64
    columns: Tensor  # (n,) int64, the column of each row's class
    weight: Tensor | None = None  # (n,) float64; None: all one


Reader: TypeAlias = Callable[[], Iterator[Block]]  # reads the same rows at every call


class DualStream:
    """Both streams on one expansion.

    In a team of processes all are given the same phases; each learns its share of the rows, and rank 0 keeps the state.

    Args:
        expansion: B, on the device of ``backend``.
        main_activation: sigma_M.
        activation: sigma_C; None for the main stream alone (ACIL), at half the memory and time.
        gamma: ridge of the main stream.
        gamma_comp: ridge of the compensation stream.
        cleanse: previous label cleansing (PLC), eq. (15).
        backend: where to compute.
    """

    def __init__(
        self,
        expansion: Expansion,
        *,
        main_activation: Activation,
        activation: Activation | None,
        gamma: float,
        gamma_comp: float,
        cleanse: bool,
        backend: Backend,
    ) -> None:
        features, size = expansion.projection.shape
        self.check_memory(features, size, backend, streams=1 if activation is None else 2)
        self.expansion, self.backend, self.cleanse = expansion, backend, cleanse
        self.main_activation, self.activation = main_activation, activation
        self.team = current()
        self.main = Ridge(size, gamma, backend)
        self.comp = None if activation is None else Ridge(size, gamma_comp, backend)

    @staticmethod
    def check_memory(features: int, size: int, backend: Backend, streams: int) -> None:
        """Raise :class:`~dsal.errors.MemoryNeededError` if so many streams from d_in to d_B numbers do not fit."""
        needed = streams * bytes_needed(size, 0, backend) + 8 * features * size + 3 * _BLOCK_BYTES
        require(needed, backend.device, f"learning with expansion_size={size}")

    @property
    def block_rows(self) -> int:
        """How many rows a block should have; results do not depend on it beyond rounding."""
        return min(max(_BLOCK_BYTES // (8 * self.main.size), 64), 8192)

    def learn(self, read: Reader, rows: int, present: Tensor, classes: int) -> None:
        """Learn one phase; if anything goes wrong, nothing has been learned.

        Args:
            read: gives the blocks of the phase, twice.
            rows: how many rows they hold.
            present: the columns of the classes in this phase (int64).
            classes: how many columns there are from now on.
        """
        present = present.sort().values
        kept = self._kept(present, self.main.classes == 0, classes)
        with self.guard():
            for ridge in self._ridges():
                ridge.grow(classes - ridge.classes)
            self._update(self.main, self._main_blocks(self._share(read()), present), rows, present)
            if self.comp is not None and self.activation is not None:
                weights = self.main.weights(None if len(kept) == classes else kept)
                residues = self._residue_blocks(self._share(read()), kept, weights, self.activation)
                self._update(self.comp, residues, rows, kept)

    def unlearn(self, read: Reader, present: Tensor) -> None:
        """Take rows out of the main stream, exactly. The compensation stream still carries them."""
        self._check_alone("forget")
        self.main.subtract(self._main_blocks(read(), present), present)

    def merge(self, other: DualStream, columns: Tensor, classes: int) -> None:
        """Learn what ``other`` has learned; its column j is our column ``columns[j]`` of ``classes``.

        Exact in the main stream. In the compensation stream each side keeps the residues against its own weights.
        """
        self._check_alone("merge")
        with self.guard():
            for ours, theirs in zip(self._ridges(), other._ridges(), strict=True):
                ours.grow(classes - ours.classes)
                ours.merge(theirs, columns)

    def keep(self, columns: Tensor) -> None:
        """Forget the columns of all other classes."""
        for ridge in self._ridges():
            ridge.keep(columns)

    def leave_one_out(self, block: Block, present: Tensor, first: bool, compensation: float) -> Tensor:
        """Logits (n x classes), on the CPU, of rows of the phase learned last, each as if it had not been learned.

        Exact in the main stream; in the compensation stream the residues of all other rows are taken as they are.

        Args:
            block: learned rows; of a weight above 1, one unit is left out, as of a row that was repeated.
            present: the columns of the classes of that phase.
            first: whether it was the first phase.
            compensation: C of eq. (19).
        """
        return self.team.told(lambda: self._leave_one_out(block, present, first, compensation).cpu())

    def _leave_one_out(self, block: Block, present: Tensor, first: bool, compensation: float) -> Tensor:
        classes = self.main.classes
        y = _targets(block.columns, torch.arange(classes, device=present.device))
        share = torch.ones_like(y[:, 0]) if block.weight is None else block.weight.clamp_max(1.0)
        z = self.expand(block.features)
        fitted, logits = self.main.leave_one_out(apply(self.main_activation, z), y, share)
        if self.comp is not None and self.activation is not None and compensation:
            kept = self._kept(present, first, classes)
            residue = torch.zeros_like(y)
            residue[:, kept] = (y - fitted)[:, kept]
            _, correction = self.comp.leave_one_out(apply(self.activation, z), residue, share)
            logits += compensation * correction
        return logits

    @contextmanager
    def guard(self) -> Iterator[None]:
        """All or nothing, for both streams; see :meth:`dsal.ridge.Ridge.guard`."""
        with ExitStack() as stack:
            for ridge in self._ridges():
                stack.enter_context(ridge.guard())
            yield

    def expand(self, features: Tensor) -> Tensor:
        """B(F), for features (n x d_in): (n x d_B)."""
        z: Tensor = self.expansion(features, self.backend.product)
        return z

    def state(self) -> dict[str, Array]:
        """The state of both streams by name: ``main.factor``, ``main.targets``, ``comp.factor``, ``comp.targets``."""
        ridges = {"main": self.main} if self.comp is None else {"main": self.main, "comp": self.comp}
        return {f"{name}.{key}": array for name, ridge in ridges.items() for key, array in ridge.state().items()}

    def restore(self, state: dict[str, Array]) -> None:
        """Become what :meth:`state` described, bit for bit."""

        def part(prefix: str) -> dict[str, Array]:
            return {key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)}

        self.main = Ridge.from_state(part("main."), self.main.gamma, self.backend)
        if self.comp is not None:
            self.comp = Ridge.from_state(part("comp."), self.comp.gamma, self.backend)

    def _ridges(self) -> list[Ridge]:
        return [self.main] if self.comp is None else [self.main, self.comp]

    def _check_alone(self, what: str) -> None:
        if self.team.size > 1:
            raise InputError(f"a team of processes can learn, but not {what}: do that in one process")

    def _update(self, ridge: Ridge, blocks: Blocks, rows: int, columns: Tensor) -> None:
        if self.team.size == 1:
            ridge.update(blocks, rows, columns)
        else:
            update_together(ridge, blocks, columns, self.team)

    def _share(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """This process' rows of each block; of several blocks together, so that they are as large as those read."""
        held: list[Block] = []
        for block in blocks:
            mine = self.team.share(len(block.features))
            weight = None if block.weight is None else block.weight[mine]
            held.append(Block(block.features[mine], block.columns[mine], weight))
            if len(held) == self.team.size:
                yield from _joined(held)
                held = []
        yield from _joined(held)

    def _main_blocks(self, blocks: Iterator[Block], columns: Tensor) -> Blocks:
        for block in blocks:
            x = apply(self.main_activation, self.expand(block.features))  # (7)
            yield _weighted(x, _targets(block.columns, columns), block.weight)

    def _kept(self, present: Tensor, first: bool, classes: int) -> Tensor:
        """The columns of the residue that survive cleansing (PLC), eq. (15): of the phase's classes; at first, all."""
        return present if self.cleanse and not first else torch.arange(classes, device=present.device)

    def _residue_blocks(self, blocks: Iterator[Block], kept: Tensor, weights: Tensor, activation: Activation) -> Blocks:
        for block in blocks:
            z = self.expand(block.features)
            fitted = self.backend.product(apply(self.main_activation, z), weights)
            residue = _targets(block.columns, kept) - fitted  # (13), and (15): columns not kept are zero
            yield _weighted(apply(activation, z), residue, block.weight)  # (14)


def _targets(columns: Tensor, which: Tensor) -> Tensor:
    """One-hot rows (n x len(which)) of the classes ``columns`` (n,)."""
    return (columns[:, None] == which).double()


def _joined(blocks: list[Block]) -> Iterator[Block]:
    """One block of all their rows; none where there are none."""
    if len(blocks) > 1:
        features, columns = torch.cat([b.features for b in blocks]), torch.cat([b.columns for b in blocks])
        plain = all(b.weight is None for b in blocks)
        weights = [torch.ones_like(b.features[:, 0]) if b.weight is None else b.weight for b in blocks]
        blocks = [Block(features, columns, None if plain else torch.cat(weights))]
    yield from (block for block in blocks if len(block.columns))


def _weighted(x: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows times the root of their weight: a row of weight 2 counts as two equal rows."""
    if weight is None:
        return x, y
    root = weight.sqrt()[:, None]
    return x * root, y * root
