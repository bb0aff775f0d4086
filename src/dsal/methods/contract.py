"""What a class-incremental method is: it learns phases, scores the classes seen, and shows what it keeps.

Classes are *positions* 0, 1, 2 ... in order of arrival; the protocol tells a method which of them a phase contains.
A method takes features of a frozen backbone or images (:attr:`Method.inputs` says which), as
:class:`~dsal.data.samples.Samples` either way.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsal.data.samples import Samples
from dsal.distributed import ALONE, Team
from dsal.errors import FileFormatError, InputError
from dsal.progress import Progress
from dsal.schema import ANY_TABLE, Record, Schema, Text
from dsal.store import StrPath, load_tensors, save_tensors

if TYPE_CHECKING:
    from dsal.backbones import Backbone

Self = TypeVar("Self", bound="Method")

_KIND = "method"
_SCHEMA = Schema(_KIND, Record({"class": Text(200), "facts": ANY_TABLE}), None)


@dataclass(frozen=True)
class Phase:
    """What arrives at once.

    Attributes:
        index: number of the phase, from 0.
        classes: all positions the phase contains, ascending; new ones follow the classes seen without a gap.
        samples: of these classes, labelled by position.
    """

    index: int
    classes: Sequence[int]
    samples: Samples


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
    seeds of an experiment set. :class:`~dsal.methods.features.method.FeatureMethod` is the short form for methods on
    arrays of features.
    """

    inputs: ClassVar[Literal["features", "images"]]
    takes_returning_classes: ClassVar[bool] = False
    """A class of an earlier phase may come again."""
    seed_varies: ClassVar[str | None] = None
    """What another seed changes, in words; None where the method draws nothing."""
    trials: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    """Options that a comparison tries out on held-out samples of phase 0; the defaults come first."""
    team: Team = ALONE
    """The processes that learn together, each with the same samples; set by whoever runs the method."""

    @property
    @abstractmethod
    def exemplar_free(self) -> bool:
        """Whether no sample, neither image nor feature vector, is kept between phases, with the options chosen."""

    @property
    @abstractmethod
    def classes_seen(self) -> int:
        """Number of classes of the phases learned to their end; they are positions 0 .. classes_seen - 1."""

    def start(self, backbone: Backbone) -> None:
        """Begin with a network that was trained on the classes of phase 0; for methods on images."""
        raise InputError(f"{type(self).__name__} learns from {self.inputs}: it has no network to start from")

    def learn(self, phase: Phase) -> Iterator[Progress]:
        """Learn one phase, in as many steps as the method likes; it has been learned when the iterator ends.

        At every step :meth:`state` is valid: a method restored from it and given the same phase again continues from
        there, bit for bit.

        Raises:
            InputError: classes and samples do not fit together, or a class returns that this method cannot take again.
        """
        known, classes, labels = self.classes_seen, list(phase.classes), phase.samples.labels
        new = [c for c in classes if c >= known]
        if len(labels) == 0 or len(classes) == 0:
            raise InputError(f"a phase needs samples and classes; got {len(labels)} samples of {len(classes)} classes")
        if classes != sorted(set(classes)) or new != list(range(known, known + len(new))) or min(classes) < 0:
            raise InputError(f"the classes of a phase must be ascending positions, new ones from {known} on")
        if not np.isin(labels.cpu().numpy(), np.asarray(classes)).all():
            raise InputError("a sample's class is not among the classes of the phase")
        if len(new) < len(classes) and not self.takes_returning_classes:
            raise InputError(f"{type(self).__name__} cannot take a class again, and {classes[0]} was seen before")
        return self._steps(phase)

    @abstractmethod
    def _steps(self, phase: Phase) -> Iterator[Progress]:
        """Learn one phase that has been checked; a generator."""

    @abstractmethod
    def scores(self, samples: Samples) -> NDArray[np.floating[Any]]:
        """Scores of all classes seen, (n, classes_seen); the largest one is the prediction. Labels do not matter."""

    def predict(self, samples: Samples) -> NDArray[np.int64]:
        """The class of the largest score, (n,); a method that can find it faster than by all scores overrides this."""
        best: NDArray[np.int64] = self.scores(samples).argmax(axis=1)
        return best

    @abstractmethod
    def state(self) -> State:
        """Everything kept between steps, options included; :meth:`from_state` continues from it bit for bit."""

    @classmethod
    @abstractmethod
    def from_state(cls: type[Self], state: State) -> Self:
        """The method whose :meth:`state` this was; an error of any kind where it is not."""

    @classmethod
    def restore(cls: type[Self], state: State, source: StrPath) -> Self:
        """The method whose :meth:`state` was read from the file ``source``.

        Raises:
            FileFormatError: it is no state of this method.
        """
        try:
            return cls.from_state(state)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
            raise FileFormatError(f"{source} holds no usable state of {cls.__name__}: {error}") from error

    def save(self, path: StrPath) -> None:
        """Write the state to one file, atomically."""
        state = self.state()
        save_tensors(path, state.arrays, {"kind": _KIND, "class": type(self).__name__, "facts": state.facts})

    @classmethod
    def load(cls: type[Self], path: StrPath) -> Self:
        """Read what :meth:`save` wrote."""
        arrays, meta = load_tensors(path, _SCHEMA)
        if meta["class"] != cls.__name__:
            raise FileFormatError(f"{path} holds the state of {meta['class']}, not of {cls.__name__}")
        return cls.restore(State(arrays, meta["facts"]), path)
