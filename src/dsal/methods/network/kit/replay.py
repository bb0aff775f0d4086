"""The base class of methods that keep images of earlier phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dsal.data.samples import Samples
from dsal.methods.contract import Phase
from dsal.methods.network.kit.exemplars import Exemplars
from dsal.methods.network.kit.growing_network import Output
from dsal.methods.network.kit.network_method import NetworkMethod

Classifier = Literal["cnn", "nme"]


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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._means: Tensor | None = None  # (classes, d), of the current network and exemplars

    @property
    def readout(self) -> Classifier:
        """What predicts: ``cnn``, the head, or ``nme``, the nearest mean of exemplars."""
        return "cnn"

    def other_predictions(self, samples: Samples) -> dict[str, NDArray[np.int64]]:
        if self.exemplars.data is None:
            return {}
        other: Classifier = "nme" if self.readout == "cnn" else "cnn"
        answers = [self._scores_by(other, x, output).argmax(1).cpu() for x, output, _ in self._read(samples)]
        return {other: torch.cat(answers).numpy() if answers else np.empty(0, dtype=np.int64)}

    def exemplar_means(self) -> Tensor:
        """Return unit-length means (classes, d) of the unit-length features of exemplars and their mirror images."""
        data = self.exemplars.data
        if data is None:
            raise ValueError("there are no exemplars to take means of")
        both = [functional.normalize(self.features_of(part)) for part in (data, data.flipped())]
        rows, labels = (both[0] + both[1]) / 2, data.labels
        means = [rows[(labels == label).to(rows.device)].mean(dim=0) for label in range(self._classes)]
        return functional.normalize(torch.stack(means))

    def _scores(self, images: Tensor, output: Output) -> Tensor:
        return self._scores_by(self.readout, images, output)

    def _scores_by(self, readout: Classifier, images: Tensor, output: Output) -> Tensor:
        """Return scores (n, classes) of a batch of images: those of the head, or negative distances to means."""
        if readout == "cnn":
            return self._head_scores(images, output)
        if self._means is None:
            self._means = self.exemplar_means()
        return -torch.cdist(functional.normalize(output.features), self._means)

    def _head_scores(self, images: Tensor, output: Output) -> Tensor:
        """Return the scores of the head, (n, classes)."""
        return output.logits

    def _end(self, phase: Phase) -> None:
        super()._end(phase)
        self._means = None

    def _memory(self) -> Exemplars:
        return Exemplars(self.exemplars_per_class, self.exemplar_bytes)
