"""The DS-AL learner: one expansion, a main stream, and compensation streams on its residue.

    main            X_M = sigma_M(B(F))  learns  Y                            eqs. (7), (11), (12)
    compensation    X_C = sigma_C(B(F))  learns  Y - X_M W_M, cleansed        eqs. (13)-(18)
    output          X_M W_M + C X_C W_C                                       eq. (19)

A phase is read twice: the residue is taken against the weights at the *end* of the phase, as in the paper, so neither
the batch size nor the order of rows inside a phase changes what is learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.analytic.activations import Activation, apply, resolve
from dsal.analytic.expansion import Expansion, expansions
from dsal.analytic.head import AnalyticHead, best_columns, logits
from dsal.analytic.parallel import own_rows, update
from dsal.analytic.ridge import Blocks, Ridge, bytes_needed
from dsal.analytic.ridge_state import pack_ridge, rollback, unpack_ridge
from dsal.analytic.rows import PhaseRows, explain_indefinite, pick
from dsal.analytic.streams import (
    Auto,
    Compensation,
    check_gamma,
    check_positive,
    check_size,
    cleansed,
    is_auto,
    one_hot,
    residue,
)
from dsal.analytic.tuning import GAMMA_ROWS, RatioFit, choose_gammas
from dsal.base.memory import require
from dsal.base.options import EXPANSION_SIZE, GAMMA
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.files.model_schema import LEARNER, learner_arrays
from dsal.files.schema import check_arrays
from dsal.files.tensors import flat, parted
from dsal.linalg.backend import Array, Backend, backend_for

_BLOCK_BYTES = 2**25  # of one block of expanded rows: large enough for BLAS, small compared with the squares


class Learner:
    """The streams on one expansion, which is built in the first phase.

    With several processes, all get the same phases; each learns its part of the rows, and rank 0 keeps the state.
    If a method raises, the learner is unchanged.

    Args:
        expansion: name of the expansion.
        expansion_options: keyword arguments for its ``build``.
        size: d_B.
        seed: of the expansion, and of the sample of rows that represents a phase.
        gamma: ridge penalty of the main stream, or ``"auto"`` to choose it in the first phase.
        main_activation: sigma_M: a name, or a function of tensors.
        compensations: the compensation streams; none for the main stream alone (ACIL), at half the memory and time.
        backend: where to compute; the fastest device by default.
        team: the processes that learn together.

    Attributes:
        expansion: B; None before the first phase.
        main: the main stream; None before the first phase and in a learner restored without its learning part.
        comps: the compensation streams, in the order of ``compensations``.
        gammas: ridge penalties in use, of the main stream and of each compensation stream.
        ratio: the sums that determine C when it is ``"auto"``.
        phases: number of phases learned.
    """

    def __init__(
        self,
        *,
        expansion: str = "random",
        expansion_options: Mapping[str, Any] | None = None,
        size: int = EXPANSION_SIZE,
        seed: int = 0,
        gamma: float | Auto = GAMMA,
        main_activation: str | Activation = "relu",
        compensations: Sequence[Compensation] = (Compensation(),),
        backend: Backend | None = None,
        team: Team = ALONE,
    ) -> None:
        self.kind, self.size, self.seed = expansions.get(expansion), check_size(size), seed
        self.expansion_options = dict(expansion_options or {})
        self.gamma, self.main_activation = check_gamma("gamma", gamma), resolve(main_activation)
        self.compensations = tuple(compensations)
        for stream in self.compensations:
            if stream.gamma is not None:
                check_gamma("gamma_comp", stream.gamma)
        self.backend, self.team = backend or backend_for("auto"), team
        self.expansion: Expansion | None = None
        self.main: Ridge | None = None
        self.comps: tuple[Ridge, ...] = ()
        self.gammas: tuple[float, ...] = ()
        self.ratio, self.phases = RatioFit(), 0
        self._frozen: tuple[Tensor, ...] | None = None  # the weights, if there is no learning part
        self._guarded = self._leftovers = False

    @property
    def classes(self) -> int:
        """Number of columns."""
        if self._frozen is not None:
            return self._frozen[0].shape[1]
        return 0 if self.main is None else self.main.classes

    @property
    def exemplar_free(self) -> bool:
        """Whether the expansion holds no rows of the first phase."""
        return not self.kind.wants_rows

    @property
    def block_rows(self) -> int:
        """Number of rows per block; it affects results by rounding only."""
        return min(max(_BLOCK_BYTES // (8 * self.size), 64), 8192)

    @property
    def rows_wanted(self) -> int:
        """Number of rows of the first phase needed to build the expansion and to choose gamma."""
        chooses = is_auto(self.gamma) or any(is_auto(stream.gamma) for stream in self.compensations)
        return max(GAMMA_ROWS if chooses else 0, self.size if self.kind.wants_rows else 0)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """W (d_B x classes) of the main stream and of each compensation stream."""
        return self._frozen or tuple(ridge.weights() for ridge in self.ridges)

    @property
    def ridges(self) -> tuple[Ridge, ...]:
        """The main stream and the compensation streams; raises :class:`InputError` without a learning part."""
        self.check_learns()
        return () if self.main is None else (self.main, *self.comps)

    @property
    def learns_on(self) -> bool:
        """Whether it can learn; False if it was restored without its learning part."""
        return self._frozen is None

    def check_learns(self) -> None:
        """Raise :class:`InputError` if this learner was restored without its learning part."""
        if not self.learns_on:
            raise InputError(
                "this model was saved without its learning part: it can predict, but neither learn, forget nor merge; "
                "save with learning=True to go on learning"
            )

    def learn(self, phase: PhaseRows) -> None:
        """Learn one phase."""
        for _ in self.learn_streams(phase):
            pass

    def learn_streams(self, phase: PhaseRows) -> Iterator[int]:
        """Learn one phase stream by stream, yielding the number of each (0: the main stream) when it is done.

        If the caller stops early, nothing is learned.
        """
        first = self.classes == 0
        with self.rollback(), explain_indefinite(phase.read):
            if self.main is None and self._frozen is None:
                self._begin(phase)
            for ridge in self.ridges:
                ridge.grow(phase.classes - ridge.classes)
            every = torch.arange(phase.classes, device=self.backend.device)
            main, *comps = self.ridges
            update(main, self._main_blocks(phase, phase.present), phase.rows, phase.present, self.team)
            yield 0
            for number, (stream, ridge) in enumerate(zip(self.compensations, comps, strict=True), start=1):
                kept = phase.present if stream.cleanse and not first else every  # in the first, all classes are new
                update(ridge, self.residue_blocks(phase, stream, kept, main.weights()), phase.rows, kept, self.team)
                yield number
            self.phases += 1

    def unlearn(self, phase: PhaseRows) -> None:
        """Remove rows from the main stream, as if it had never seen them.

        Compensation streams still contain them: see :meth:`drop_compensation`. So does a gamma that was chosen by
        ``"auto"``. Rows that the expansion holds are refused.
        """
        self._check_alone("forget")
        with self.rollback():
            if any(self.built().contains(block.features).any() for block in phase.read(self.block_rows)):
                raise InputError(
                    f"some of these rows are part of the expansion ({self.kind.name!r}, built from rows of the first "
                    'phase) and cannot be forgotten: learn again without them, or use expansion="random"'
                )
            self.ridges[0].subtract(self._main_blocks(phase, phase.present), phase.present)
            self._leftovers = True

    def drop_compensation(self) -> None:
        """Remove the compensation streams and all that was measured with them; the main stream goes on alone."""
        with self.rollback():
            self.compensations, self.comps, self.gammas, self.ratio = (), (), self.gammas[:1], RatioFit()
            self._frozen = None if self._frozen is None else self._frozen[:1]

    def merge(self, other: Learner, columns: Tensor, classes: int) -> None:
        """Add what ``other`` has learned; its column j is our column ``columns[j]`` of ``classes``.

        Exact in the main stream. In a compensation stream each side keeps the residues against its own weights; a
        learner without such a stream takes the other's main stream alone.
        """
        self._check_alone("merge")
        self.check_mergeable(other)
        with self.rollback():
            for ours, theirs in zip(self.ridges, other.ridges, strict=False):
                ours.grow(classes - ours.classes)
                ours.merge(theirs, columns)
            self.phases += other.phases
            self.ratio = self.ratio.merged(other.ratio)

    def unmerge(self, other: Learner, columns: Tensor) -> None:
        """Subtract what ``other`` has learned; its column j is our column ``columns[j]``.

        Exact in the main stream if its rows were learned here, in whatever way. Exact in a compensation stream if
        ``other`` was merged as it is; otherwise the residues differ.
        """
        self._check_alone("subtract a model")
        self.check_mergeable(other)
        with self.rollback():
            for ours, theirs in zip(self.ridges, other.ridges, strict=False):
                ours.unmerge(theirs, columns)
            self._leftovers = True

    def select(self, columns: Tensor) -> None:
        """Drop the columns of all other classes: they are never predicted again."""
        with self.rollback():
            for ridge in self.ridges:
                ridge.select(columns)

    def strength(self, compensation: float | Auto | None) -> float:
        """Return C in use: as given, 0 for None, or for ``"auto"`` the value fitted to the phases learned so far."""
        return self.ratio.ratio if isinstance(compensation, str) else compensation or 0.0

    def head(self, compensation: float, classes: Sequence[object] = ()) -> AnalyticHead:
        """Return the module from features to logits; it shares the current weights and does not copy them.

        Args:
            compensation: C of the first compensation stream; with 0 the main stream predicts alone.
            classes: the label of each column.
        """
        expansion, weights = self.built(), self.weights
        self.check_compensation(compensation)
        return AnalyticHead(
            expansion,
            main_activation=self.main_activation,
            main=weights[0],
            activation=self.compensations[0].activation if compensation else self.main_activation,
            comp=weights[1] if compensation else None,
            compensation=compensation,
            classes=list(classes),
        )

    def check_compensation(self, compensation: float | Auto | None) -> None:
        """Raise :class:`InputError` if C is not 0 but there is no compensation stream."""
        if compensation and not self.compensations:
            raise InputError(
                "the model has no compensation stream (it was learned with compensation=None, or forget removed it): "
                "set compensation to 0 or None, or fit again with a number"
            )

    def logits(self, X: NDArray[Any], compensation: float, dtype: torch.dtype = torch.float64) -> NDArray[Any]:
        """Return the logits (n x classes) of features X (n x d_in), eq. (19)."""
        return logits(self.head(compensation), X, self.backend, dtype)

    def predict(self, X: NDArray[Any], compensation: float) -> NDArray[np.int64]:
        """Return the column of the largest logit for every row of X (n x d_in): (n,)."""
        return best_columns(self.head(compensation), X, self.backend)

    def outputs(self, X: NDArray[Any]) -> list[Tensor]:
        """Return X_M W_M, and X_C W_C of each compensation stream, (n x classes), for features X (n x d_in)."""
        activations, weights = (self.main_activation, *(s.activation for s in self.compensations)), self.weights
        parts: list[list[Tensor]] = [[] for _ in weights]
        for start in range(0, len(X), self.block_rows):
            rows = torch.tensor(X[start : start + self.block_rows], dtype=torch.float64, device=self.backend.device)
            z = self.expand(rows)
            for part, activation, w in zip(parts, activations, weights, strict=True):
                part.append(self.backend.product(apply(activation, z), w))
        return [torch.cat(part) for part in parts]

    @contextmanager
    def rollback(self) -> Iterator[None]:
        """Restore the learner, bit for bit, if the block raises, even by Ctrl-C."""
        if self._guarded:  # the outer block is enough
            yield
            return
        with rollback(self.ridges if self.learns_on else (), self):
            self._guarded = True
            yield
        self._guarded = False
        if self._leftovers:  # the copy for a rollback contains what was to be removed
            for ridge in self.ridges:
                ridge.backend.discard_(ridge.square)
            self._leftovers = False

    def state(self, learning: bool = True) -> dict[str, Array]:
        """Return all arrays by name: the expansion's under ``expansion.``, each stream's under ``main.`` and ``comp.``.

        With :meth:`facts` they restore the learner bit for bit. Arrays may be views of its memory.

        Args:
            learning: whether to return what further learning needs (see ``ridge_state``), or the weights alone.
        """
        if self.expansion is None:
            return {}
        buffers = {name: buffer.cpu().numpy() for name, buffer in self.expansion.state_dict().items()}
        weights = [] if learning else [{"weights": w.T.cpu().numpy()} for w in self.weights]
        streams = [pack_ridge(ridge) for ridge in self.ridges] if learning else weights
        return flat({"expansion": buffers, **dict(zip(self._names, streams, strict=True))})

    def facts(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs besides the arrays, as JSON values."""
        return {"phases": self.phases, "gammas": list(self.gammas), "ratio": [self.ratio.explained, self.ratio.energy]}

    def restore(self, arrays: Mapping[str, Array], facts: Mapping[str, Any], learning: bool = True) -> None:
        """Restore the learner from :meth:`state` and :meth:`facts`; without the learning part it can only predict."""
        if not arrays:
            return
        LEARNER.check({name: facts[name] for name in LEARNER.keys if name in facts}, "the learner")
        parts, names, device = parted(arrays), self._names, self.backend.device
        own = {name: parts[name] for name in ("expansion", *names) if name in parts}
        check_arrays(flat(own), learner_arrays(learning), {"expansion_size": self.size})
        self.expansion = self.kind(**{name: torch.from_numpy(a).to(device) for name, a in own["expansion"].items()})
        self.phases, self.ratio = facts["phases"], RatioFit(*facts["ratio"])
        self.gammas = tuple(check_positive("gamma", gamma) for gamma in facts["gammas"][: len(names)])
        if learning:
            gammas = zip(names, self.gammas, strict=True)
            self.main, *comps = (unpack_ridge(own[name], gamma, self.backend) for name, gamma in gammas)
            self.comps, self._frozen = tuple(comps), None
        else:
            self._frozen = tuple(torch.from_numpy(own[name]["weights"]).to(device).T for name in names)

    @property
    def _names(self) -> list[str]:
        """Names of the streams in :meth:`state`."""
        return ["main", *(f"comp{number or ''}" for number in range(len(self.compensations)))]

    def _begin(self, phase: PhaseRows) -> None:
        """Build the expansion and the streams for the first phase."""
        sample, device = phase.sample, self.backend.device
        features = next(phase.read(1)).features.shape[1] if sample is None else sample.features.shape[1]
        squares = (1 + len(self.compensations)) * bytes_needed(self.size, 0, self.backend)
        needed = squares + 8 * features * self.size + 3 * _BLOCK_BYTES
        require(needed, device, f"learning with expansion_size={self.size}")
        if sample is None and self.rows_wanted:
            sample = pick(phase.read, self.rows_wanted, self.seed, device)
        rows = torch.empty(0, features, dtype=torch.float64) if sample is None else sample.features[: self.size].cpu()
        self.expansion = self.kind.build(features, self.size, self.seed, rows, **self.expansion_options).to(device)
        streams = self.gamma, self.main_activation, self.compensations
        self.gammas = choose_gammas(replace(phase, sample=sample), self.expansion, *streams, self.backend)
        self.main, *comps = (Ridge(self.size, gamma, self.backend) for gamma in self.gammas)
        self.comps = tuple(comps)

    def built(self) -> Expansion:
        """Return B; raise :class:`InputError` before the first phase."""
        if self.expansion is None:
            raise InputError("nothing has been learned yet")
        return self.expansion

    def expand(self, features: Tensor) -> Tensor:
        """Return B(F) (n x d_B), for features F (n x d_in)."""
        z: Tensor = self.built()(features, self.backend.product)
        return z

    def _check_alone(self, what: str) -> None:
        if self.team.size > 1:
            raise InputError(f"a team of processes can learn, but not {what}: do that in one process")

    def check_mergeable(self, other: Learner) -> None:
        """Raise :class:`InputError` if ``other`` cannot be merged: expansion and activations must be the same."""
        self.check_learns()
        other.check_learns()
        if self is other:
            raise InputError("a model cannot merge with itself")
        if self.built().fingerprint() != other.built().fingerprint():
            raise InputError("only models with equal expansions merge: same features, expansion_size and random_state")
        if self.main_activation is not other.main_activation:
            raise InputError("only models with equal main_activation merge")
        theirs = [stream.activation for stream in other.compensations]
        if self.compensations and not theirs:
            raise InputError(
                "the other model has no compensation stream (compensation=None, or it has forgotten rows) and this one "
                "has: call drop_compensation() here to merge the main streams alone"
            )
        if self.compensations and [stream.activation for stream in self.compensations] != theirs:
            raise InputError("only models with equal activation merge")

    def _main_blocks(self, phase: PhaseRows, columns: Tensor) -> Blocks:
        for block in own_rows(phase.read(self.block_rows), self.team):
            x = apply(self.main_activation, self.expand(block.features))  # (7)
            yield block.weighted(x, one_hot(block.columns, columns))

    def residue_blocks(self, phase: PhaseRows, stream: Compensation, kept: Tensor, weights: Tensor) -> Blocks:
        """Yield X_C and, of its targets, the columns ``kept``; ``weights`` are W_M at the end of the phase."""
        every = torch.arange(phase.classes, device=self.backend.device)
        for block in own_rows(phase.read(self.block_rows), self.team):
            z = self.expand(block.features)
            fitted = self.backend.product(apply(self.main_activation, z), weights)
            left_over = cleansed(residue(one_hot(block.columns, every), fitted), kept)  # (13), (15)
            yield block.weighted(apply(stream.activation, z), left_over[:, kept])  # (14); the rest is zero
