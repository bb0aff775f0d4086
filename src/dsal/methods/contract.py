"""What a class-incremental method is: it learns phases, scores the classes seen, and lays open what it keeps.

Classes are *positions* 0, 1, 2 ... in order of arrival; the protocol tells a method which of them a phase contains.
Samples are arrays: features (n, d) float32 for methods on a frozen backbone, images (n, C, H, W) uint8 for methods
that train a network (:attr:`Method.inputs` says which).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsal.errors import FileFormatError, InputError
from dsal.store import StrPath, load_tensors, save_tensors

Samples = NDArray[Any]
Self = TypeVar("Self", bound="Method")

_KIND = "method"


@dataclass(frozen=True)
class State:
    """Everything a method keeps between phases: named arrays, and facts that JSON can hold.

    The arrays may be views of the method's own memory: write them or copy them before it learns on.
    """

    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]

    @property
    def nbytes(self) -> int:
        """Bytes that are kept between phases: the arrays, and the facts as JSON."""
        return sum(array.nbytes for array in self.arrays.values()) + len(json.dumps(self.facts))


class Method(ABC):
    """A class-incremental learner.

    A constructor takes its options as keywords, with defaults, and nothing else; an option named ``seed`` is what the
    seeds of an experiment set.
    """

    inputs: ClassVar[Literal["features", "images"]] = "features"
    takes_returning_classes: ClassVar[bool] = False
    """A class of an earlier phase may come again."""
    seed_varies: ClassVar[str | None] = None
    """What another seed changes, in words; None where the method draws nothing."""
    trials: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    """Options that a comparison tries out on held-out samples of phase 0; the defaults come first."""

    @property
    @abstractmethod
    def exemplar_free(self) -> bool:
        """Whether no sample, neither image nor feature vector, is kept between phases, with the options chosen."""

    @property
    @abstractmethod
    def classes_seen(self) -> int:
        """Number of classes seen; they are positions 0 .. classes_seen - 1."""

    def learn(self, X: Samples, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        """Learn one phase.

        Args:
            X: the phase's samples, (n, ...).
            y: their positions, (n,).
            classes: all positions the phase contains, ascending; new ones follow the classes seen without a gap.

        Raises:
            InputError: the three do not fit together, or a class returns that this method cannot take again.
        """
        known = self.classes_seen
        new = [c for c in classes if c >= known]
        if len(X) != len(y) or len(y) == 0 or len(classes) == 0:
            raise InputError(
                f"a phase needs samples, and a class for each; got {len(X)}, {len(y)} of {len(classes)} classes"
            )
        if list(classes) != sorted(set(classes)) or new != list(range(known, known + len(new))) or min(classes) < 0:
            raise InputError(f"the classes of a phase must be ascending positions, new ones from {known} on")
        if not np.isin(y, np.asarray(classes)).all():
            raise InputError("a sample's class is not among the classes of the phase")
        if len(new) < len(classes) and not self.takes_returning_classes:
            raise InputError(f"{type(self).__name__} cannot take a class again, and {classes[0]} was seen before")
        self._learn(X, y, classes)

    @abstractmethod
    def _learn(self, X: Samples, y: NDArray[np.int64], classes: Sequence[int]) -> None:
        """Learn one phase whose arguments have been checked."""

    @abstractmethod
    def scores(self, X: Samples) -> NDArray[np.floating[Any]]:
        """Scores of all classes seen, (n, classes_seen); the largest one is the prediction."""

    def predict(self, X: Samples) -> NDArray[np.int64]:
        """The class of the largest score, (n,); a method that can find it faster than by all scores overrides this."""
        best: NDArray[np.int64] = self.scores(X).argmax(axis=1)
        return best

    @abstractmethod
    def state(self) -> State:
        """Everything kept between phases, options included; :meth:`from_state` continues from it bit for bit."""

    @classmethod
    @abstractmethod
    def from_state(cls: type[Self], state: State) -> Self:
        """The method whose :meth:`state` this was."""

    def save(self, path: StrPath) -> None:
        """Write the state to one file, atomically."""
        state = self.state()
        save_tensors(path, state.arrays, {"kind": _KIND, "class": type(self).__name__, "facts": state.facts})

    @classmethod
    def load(cls: type[Self], path: StrPath) -> Self:
        """Read what :meth:`save` wrote."""
        arrays, meta = load_tensors(path, kind=_KIND)
        if meta["class"] != cls.__name__:
            raise FileFormatError(f"{path} holds the state of {meta['class']}, not of {cls.__name__}")
        return cls.from_state(State(arrays, meta["facts"]))
