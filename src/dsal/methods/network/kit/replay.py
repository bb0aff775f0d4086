"""The base class of methods that keep images of earlier phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dsal.data.samples import Samples
from dsal.methods.network.kit.exemplars import Exemplars, Memory
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.network_method import NetworkMethod

Classifier = Literal["cnn", "nme"]


Replay = TypeVar("Replay", bound="ReplayMethod")


class Herded(Memory[Replay]):
    """Some images of each class are kept: ``exemplars_per_class``, within ``exemplar_bytes``."""

    def room(self) -> Exemplars:
        return Exemplars(self.method.exemplars_per_class, self.method.exemplar_bytes)


@dataclass(kw_only=True, eq=False)
class ReplayMethod(NetworkMethod):
    """A method that trains on the images of a phase and on exemplars of all earlier classes.

    It can predict in two ways: by the scores of its head (``cnn``) and by the nearest mean of exemplars (``nme``, as
    iCaRL). A method uses the one that its paper does; the accuracy of the other is reported as well.

    Args:
        exemplars_per_class: images kept of each class.
        exemplar_bytes: bytes of all exemplars together; None for no limit.
    """

    exemplars_per_class: int = 20
    exemplar_bytes: int | None = None

    policy = Herded

    def __post_init__(self) -> None:
        super().__post_init__()
        self._means: tuple[int, Tensor] | None = None  # (classes, d), and the number of classes they were taken for

    @property
    def readout(self) -> Classifier:
        """What predicts: ``cnn``, the head, or ``nme``, the nearest mean of exemplars."""
        return "cnn"

    def head_scores(self, images: Tensor, output: Output) -> Tensor:
        """Return the scores of the head, (n, classes)."""
        return output.logits

    def scores_of(self, images: Tensor, output: Output) -> Tensor:
        return self._scores_by(self.readout, images, output)

    def other_predictions(self, samples: Samples) -> dict[str, NDArray[np.int64]]:
        if not len(self.exemplars):
            return {}
        other: Classifier = "nme" if self.readout == "cnn" else "cnn"
        answers = [self._scores_by(other, x, output).argmax(1).cpu() for x, output, _ in self.read(samples)]
        return {other: torch.cat(answers).numpy() if answers else np.empty(0, dtype=np.int64)}

    def exemplar_means(self) -> Tensor:
        """Return unit-length means (classes, d) of the unit-length features of exemplars and their mirror images."""
        data = self.exemplars.data
        if data is None:
            raise ValueError("there are no exemplars to take means of")
        both = [functional.normalize(self.features_of(part)) for part in (data, data.flipped())]
        rows, labels = (both[0] + both[1]) / 2, data.labels
        means = [rows[(labels == label).to(rows.device)].mean(dim=0) for label in range(self.classes_seen)]
        return functional.normalize(torch.stack(means))

    def _scores_by(self, readout: Classifier, images: Tensor, output: Output) -> Tensor:
        """Return scores (n, classes) of a batch of images: those of the head, or negative distances to means."""
        if readout == "cnn":
            return self.head_scores(images, output)
        if self._means is None or self._means[0] != self.classes_seen:
            self._means = self.classes_seen, self.exemplar_means()
        return -torch.cdist(functional.normalize(output.features), self._means[1])
