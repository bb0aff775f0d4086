"""The interface of a class-incremental method: it learns phases, scores the classes seen, and exposes its state.

Classes are *positions* 0, 1, 2 ... in order of arrival; the protocol passes a method those that a phase contains.
A method takes images or the features of a frozen backbone (see :attr:`Method.inputs`), in both cases as
:class:`~dsal.data.samples.Samples`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dsal.base.progress import Progress
from dsal.data.samples import Samples
from dsal.distributed import ALONE, Team
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import StrPath
from dsal.files.schema import ANY_TABLE, Record, Schema, Text
from dsal.files.tensors import load_tensors, save_tensors

if TYPE_CHECKING:
    from dsal.backbones import Backbone

Self = TypeVar("Self", bound="Method")

_KIND = "method"
_SCHEMA = Schema(_KIND, Record({"class": Text(200), "facts": ANY_TABLE}), None)


@dataclass(frozen=True)
class Phase:
    """One phase of a run: classes and samples that arrive together.

    Attributes:
        index: number of the phase, from 0.
        classes: all positions in the phase, ascending; new ones follow the classes seen without a gap.
        samples: samples of these classes, labelled by position.
    """

    index: int
    classes: Sequence[int]
    samples: Samples


@dataclass(frozen=True)
class State:
    """Everything a method keeps between phases: named arrays, and facts that can be stored as JSON.

    The arrays may be views of the method's own memory: save or copy them before it learns more.
    """

    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]

    @property
    def nbytes(self) -> int:
        """Bytes kept between phases: the arrays, and the facts as JSON."""
        return sum(array.nbytes for array in self.arrays.values()) + len(json.dumps(self.facts))


class Method(ABC):
    """A class-incremental learner.

    The constructor takes only options, as keywords with defaults; the seeds of an experiment set one named ``seed``.
    :class:`~dsal.methods.FeatureMethod` is the short form for methods on arrays of features.
    """

    name: ClassVar[str] = ""
    """The name that chooses the method; a method of another package has that of its entry point."""
    title: ClassVar[str] = ""
    """The name as its authors spell it, for tables and figures; ``name`` if empty."""
    inputs: ClassVar[Literal["features", "images"]]
    takes_returning_classes: ClassVar[bool] = False
    """Whether a class of an earlier phase may return with more samples."""
    seed_varies: ClassVar[str | None] = None
    """What another seed changes, in words; None if the method draws no random numbers."""
    trials: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    """Options that a comparison tries on held-out samples of phase 0; the defaults come first."""
    team: Team = ALONE
    """The processes that learn together, each with the same samples; set by the caller."""

    @property
    @abstractmethod
    def exemplar_free(self) -> bool:
        """Whether the method, with these options, keeps no sample (image or feature vector) between phases."""

    @property
    def stored_samples(self) -> int | None:
        """Number of images or feature vectors kept between phases; None if not counted."""
        return 0 if self.exemplar_free else None

    @property
    def trained_parameters(self) -> int | None:
        """Largest number of weights trained in a phase; None if not counted."""
        return None

    @property
    @abstractmethod
    def classes_seen(self) -> int:
        """Number of classes in completed phases; they are positions 0 .. classes_seen - 1."""

    def start(self, backbone: Backbone) -> None:
        """Start from a network trained on the classes of phase 0; for methods on images."""
        raise InputError(f"{type(self).__name__} learns from {self.inputs}: it has no network to start from")

    def learn(self, phase: Phase) -> Iterator[Progress]:
        """Learn one phase, in any number of steps; the phase is complete when the iterator ends.

        :meth:`state` is valid at every step: a method restored from it and given the same phase again continues from
        there, bit for bit.

        Raises:
            InputError: classes and samples do not match, or a class returns and this method does not support that.
        """
        known, classes, labels = self.classes_seen, list(phase.classes), phase.samples.labels
        new = [c for c in classes if c >= known]
        if len(labels) == 0 or len(classes) == 0:
            raise InputError(f"a phase needs samples and classes; got {len(labels)} samples of {len(classes)} classes")
        if classes != sorted(set(classes)) or new != list(range(known, known + len(new))) or min(classes) < 0:
            raise InputError(f"the classes of a phase must be ascending positions, new ones from {known} on")
        if not np.isin(labels.cpu().numpy(), np.asarray(classes)).all():
            raise InputError("a sample's label is not among the classes of the phase")
        if len(new) < len(classes) and not self.takes_returning_classes:
            name = type(self).__name__
            raise InputError(f"{name} cannot learn more samples of a known class, but class {classes[0]} is known")
        return self._steps(phase)

    @abstractmethod
    def _steps(self, phase: Phase) -> Iterator[Progress]:
        """Learn one phase that has been validated; a generator."""

    @abstractmethod
    def scores(self, samples: Samples) -> NDArray[np.floating[Any]]:
        """Return scores of all classes seen, (n, classes_seen); the largest is the prediction. Labels are ignored."""

    def predict(self, samples: Samples) -> NDArray[np.int64]:
        """Return the class with the largest score, (n,); override this if there is a faster way."""
        best: NDArray[np.int64] = self.scores(samples).argmax(axis=1)
        return best

    def other_predictions(self, samples: Samples) -> dict[str, NDArray[np.int64]]:
        """Return what other read-outs of the same state predict, by name, (n,) each; there are none by default."""
        return {}

    @abstractmethod
    def state(self) -> State:
        """Return everything kept between steps, including options; :meth:`from_state` continues from it bit for bit."""

    @classmethod
    @abstractmethod
    def from_state(cls: type[Self], state: State) -> Self:
        """Return the method that had this :meth:`state`; raise any error if it is not a state of this class."""

    @classmethod
    def restore(cls: type[Self], state: State, source: StrPath) -> Self:
        """Return the method whose :meth:`state` was read from the file ``source``.

        Raises:
            FileFormatError: it is not a state of this method.
        """
        try:
            return cls.from_state(state)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
            raise FileFormatError(f"{source} holds no usable state of {cls.__name__}: {error}") from error

    def save(self, path: StrPath) -> None:
        """Write the state to a file, atomically."""
        state = self.state()
        save_tensors(path, state.arrays, {"kind": _KIND, "class": type(self).__name__, "facts": state.facts})

    @classmethod
    def load(cls: type[Self], path: StrPath) -> Self:
        """Read a method from a file written by :meth:`save`."""
        arrays, meta = load_tensors(path, _SCHEMA)
        if meta["class"] != cls.__name__:
            raise FileFormatError(f"{path} holds the state of {meta['class']}, not of {cls.__name__}")
        return cls.restore(State(arrays, meta["facts"]), path)
