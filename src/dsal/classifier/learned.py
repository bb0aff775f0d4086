"""What a classifier has learned, as one value: a lesson makes a new one, or raises and leaves the old one as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsal.activations import resolve
from dsal.blas import Backend
from dsal.classifier.calibration import Calibration, rows_wanted
from dsal.classifier.inputs import Phase, make_block
from dsal.classifier.labels import columns_of, kind_of
from dsal.classifier.options import Options, is_auto
from dsal.errors import InputError
from dsal.expansion import Expansion
from dsal.head import AnalyticHead
from dsal.streams import Block, DualStream
from dsal.tuning import GAMMA_ROWS, GAMMAS, RatioFit, choose_gamma

_BLOCK_ROWS = 1024  # while gamma is chosen


@dataclass(frozen=True, eq=False)
class Learned:
    """Everything that learning changes. The streams are changed in place, all or nothing; the rest is replaced.

    Attributes:
        settings: the parameters that are fixed from the first phase on.
        seed: the integer that ``random_state`` came down to.
        backend: where to compute.
        expansion: B.
        classes: the label of each column, in order of arrival.
        class_weight: weight of the rows of each class (classes,).
        phases: how many were learned.
        calibration: what the temperature of probabilities is made of.
        gammas: ridge of the main and of the compensation stream, as given or as chosen in the first phase.
        ratio: what C is made of, from the phases learned while it was left to the model.
        streams: the state of both streams; None in a model that was saved without its learning part.
        frozen: W_M and W_C of such a model.
    """

    settings: dict[str, Any]
    seed: int
    backend: Backend
    expansion: Expansion
    classes: NDArray[Any]
    class_weight: NDArray[np.float64]
    phases: int
    calibration: Calibration
    gammas: tuple[float, float]
    ratio: RatioFit
    streams: DualStream | None
    frozen: tuple[Tensor, Tensor | None] | None = None

    @classmethod
    def nothing(cls, options: Options, settings: dict[str, Any], seed: int, phase: Phase, compensated: bool) -> Learned:
        """The state before the first phase: an expansion that fits its rows, and no classes."""
        DualStream.check_memory(phase.features, options.size, options.backend, streams=1 + compensated)
        rows = torch.from_numpy(phase.sample.x[: options.size])
        expansion = options.expansion.build(phase.features, options.size, seed, rows).to(options.backend.device)
        gammas = _gammas(options, expansion, phase, compensated)
        return cls(
            settings=settings,
            seed=seed,
            backend=options.backend,
            expansion=expansion,
            classes=phase.labels[:0],
            class_weight=np.zeros(0),
            phases=0,
            calibration=Calibration(),
            gammas=gammas,
            ratio=RatioFit(),
            streams=options.streams(expansion, gammas, compensated),
        )

    @property
    def learner(self) -> DualStream:
        """The streams, or an error that says why there are none."""
        if self.streams is None:
            raise InputError(
                "this model was saved without its learning part: it can predict, but neither learn, forget nor merge; "
                "save with learning=True to go on learning"
            )
        return self.streams

    @property
    def main(self) -> Tensor:
        """W_M (d_B x classes)."""
        return self.learner.main.weights() if self.frozen is None else self.frozen[0]

    @property
    def comp(self) -> Tensor | None:
        """W_C (d_B x classes); None if the compensation stream was not learned."""
        if self.frozen is not None:
            return self.frozen[1]
        return None if self.learner.comp is None else self.learner.comp.weights()

    def head(self, compensation: float) -> AnalyticHead:
        """Features to logits, on the weights as they are now: shared, not copied."""
        comp = self.comp if compensation else None
        if compensation and comp is None:
            raise InputError(
                "the model was learned with compensation=None and has no compensation stream: "
                "set compensation to 0 or None, or fit again with a number"
            )
        return AnalyticHead(
            self.expansion,
            main_activation=resolve(self.settings["main_activation"]),
            main=self.main,
            activation=resolve(self.settings["activation"]),
            comp=comp,
            compensation=compensation,
            classes=self.classes.tolist(),
        )

    def after(self, phase: Phase, declared: NDArray[Any], compensation: float | None) -> Learned:
        """Learn a phase, and make room for the ``declared`` classes, among them those of the phase.

        ``compensation`` is the C in force, or None where the phase has a say in it.
        """
        classes = self._extended(declared)
        columns = columns_of(phase.labels, classes)
        if (columns < 0).any():
            raise InputError(f"y holds labels that are not among `classes`: {phase.labels[columns < 0].tolist()}")
        weight = np.pad(self.class_weight, (0, len(classes) - len(self.classes)))
        weight[columns] += phase.weights
        present = self._tensor(columns)
        with self.learner.guard():
            self.learner.learn(lambda: self._blocks(phase, classes), phase.rows, present, len(classes))
            calibration, ratio = self._fitted(phase, classes, present, compensation)
        return replace(
            self,
            classes=classes,
            class_weight=weight,
            phases=self.phases + 1,
            calibration=calibration,
            ratio=ratio,
        )

    def merged(self, other: Learned) -> Learned:
        """Learn all that ``other`` has learned."""
        if self.learner is other.learner:
            raise InputError("a model cannot merge with itself")
        if self.expansion.fingerprint() != other.expansion.fingerprint():
            raise InputError("only models with equal expansions merge: same features, expansion_size and random_state")
        for name in ("activation", "main_activation"):
            if resolve(self.settings[name]) is not resolve(other.settings[name]):
                raise InputError(f"only models with equal {name} merge")
        if (self.learner.comp is None) != (other.learner.comp is None):
            raise InputError("a model learned with compensation=None merges only with its like")
        classes = self._extended(other.classes)
        columns = columns_of(other.classes, classes)
        weight = np.pad(self.class_weight, (0, len(classes) - len(self.classes)))
        weight[columns] += other.class_weight
        self.learner.merge(other.learner, self._tensor(columns), len(classes))
        return replace(
            self,
            classes=classes,
            class_weight=weight,
            phases=self.phases + other.phases,
            calibration=self.calibration.merged(other.calibration),
            ratio=self.ratio.merged(other.ratio),
        )

    def without(self, phase: Phase) -> Learned:
        """Unlearn rows, in the main stream; classes that have none left leave."""
        learner = self.learner
        columns = self._known_columns(phase)
        weight = self.class_weight.copy()
        weight[columns] -= phase.weights
        slack = 1e-9 * self.class_weight
        if (weight < -slack).any():
            raise InputError(f"more rows than were learned, of the classes {self.classes[weight < -slack].tolist()}")
        kept = np.flatnonzero((weight > slack) | (self.class_weight == 0))  # declared, but never seen: stays
        if not weight[kept].any():
            raise InputError("nothing would be left of the model: make a new one instead")
        with learner.guard():
            learner.unlearn(lambda: self._blocks(phase, self.classes), self._tensor(columns))
            learner.keep(self._tensor(kept))
        return replace(self, classes=self.classes[kept], class_weight=weight[kept])

    def leave_one_out(self, phase: Phase, compensation: float) -> NDArray[np.float64]:
        """Logits (n x classes) of rows of the last phase, each as if that row had not been learned."""
        present = self._tensor(self._known_columns(phase))
        blocks = self._blocks(phase, self.classes)
        logits = [self.learner.leave_one_out(block, present, self.phases == 1, compensation) for block in blocks]
        return torch.cat(logits).numpy()

    def _fitted(
        self, phase: Phase, classes: NDArray[Any], present: Tensor, compensation: float | None
    ) -> tuple[Calibration, RatioFit]:
        """The calibration after a phase that the streams have just learned, and what C is made of."""
        total = float(phase.weights.sum())
        some = slice(rows_wanted(total))
        columns, weight = columns_of(phase.sample.y[some], classes), phase.sample.weight[some]
        rows = make_block(phase.sample.x[some], columns, weight, self.backend.device)

        def left_out(c: float) -> NDArray[np.float64]:
            return self.learner.leave_one_out(rows, present, self.phases == 0, c).numpy()

        ratio = self.ratio
        if compensation is None:
            main = left_out(0.0)
            correction = left_out(1.0) - main
            errors = (columns[:, None] == np.arange(len(classes))) - main
            before = ratio if self.phases > 1 else RatioFit()  # the first phase counts only until there is another
            ratio = before.plus(errors, correction, weight, total)
            logits = main + ratio.ratio * correction
        else:
            logits = left_out(compensation)
        return self.calibration.plus(logits, columns, weight, total), ratio

    def _blocks(self, phase: Phase, classes: NDArray[Any]) -> Iterator[Block]:
        return phase.blocks(classes, self.learner.block_rows, self.backend.device)

    def _extended(self, labels: NDArray[Any]) -> NDArray[Any]:
        """The classes, then those of ``labels`` that are new, sorted."""
        if kind_of(labels) != kind_of(self.classes):
            raise InputError(f"labels mix types ({kind_of(self.classes)}, {kind_of(labels)}): use one type of label")
        return np.concatenate([self.classes, np.unique(labels[columns_of(labels, self.classes) < 0])])

    def _known_columns(self, phase: Phase) -> NDArray[np.int64]:
        columns = columns_of(phase.labels, self.classes)
        if (columns < 0).any():
            raise InputError(f"these classes were never learned: {phase.labels[columns < 0].tolist()}")
        return columns

    def _tensor(self, columns: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(columns).to(self.backend.device)


def _gammas(options: Options, expansion: Expansion, phase: Phase, compensated: bool) -> tuple[float, float]:
    """gamma of both streams: as given, or as the answers for rows of the first phase, left out in turn, advise."""
    device, sample = options.backend.device, phase.sample
    gamma, gamma_comp = options.gamma, options.gamma_comp
    some = slice(GAMMA_ROWS)
    choose = partial(
        choose_gamma,
        lambda: phase.blocks(phase.labels, _BLOCK_ROWS, device),
        make_block(sample.x[some], columns_of(sample.y[some], phase.labels), sample.weight[some], device),
        expansion,
        classes=len(phase.labels),
        backend=options.backend,
    )
    chooses = compensated and is_auto(gamma_comp)
    if gamma is None or chooses:
        main = choose(options.main_activation, gammas=GAMMAS if gamma is None else (gamma,))
        gamma = main.choice.gamma
    if chooses:
        gamma_comp = choose(options.activation, after=main).choice.gamma
    return gamma, gamma_comp if isinstance(gamma_comp, float) else gamma
