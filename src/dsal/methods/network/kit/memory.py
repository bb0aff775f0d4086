"""The exemplar policy of a method: which images of a phase it trains on, and which it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dsal.data.images.image_files import FileData
from dsal.data.samples import ImageData, Samples, joined
from dsal.errors import InputError
from dsal.methods.contract import Phase
from dsal.methods.network.kit.exemplars import Exemplars, herd
from dsal.methods.network.kit.part import Part

if TYPE_CHECKING:
    from dsal.methods.network.kit.network_method import NetworkMethod


class Memory(Part):
    """No images are kept, unless a subclass says so in ``room``; those kept are chosen by herding."""

    def __init__(self, method: NetworkMethod) -> None:
        super().__init__(method)
        self.exemplars = self.room()

    def room(self) -> Exemplars:
        """Return the initial, empty memory."""
        return Exemplars(0)

    def used(self, phase: Phase) -> Phase:
        """Return the phase with the images to train on."""
        return phase

    def counts(self, phase: Phase) -> dict[int, int | None]:
        """Return the number of images to keep of each class of a phase; None for all."""
        return dict.fromkeys(phase.classes, self.exemplars.per_class)

    def with_exemplars(self, phase: Phase) -> Samples:
        """Return the images of the phase and the exemplars of earlier ones."""
        old = self.exemplars.data
        return phase.samples if old is None else joined([phase.samples, old])

    def keep(self, phase: Phase) -> None:
        """Choose exemplars of the new classes by herding, unless already done in this phase."""
        known, held = self.method.classes_seen, self.exemplars.data
        if self.exemplars.per_class == 0 or (held is not None and bool((held.labels >= known).any())):
            return
        labels, chosen = phase.samples.labels, []
        for label, count in self.counts(phase).items():
            rows = torch.nonzero(labels == label).flatten()
            own = phase.samples.take(rows)
            some = own if count is None else own.take(herd(self.method.features_of(own), count).to(rows.device))
            chosen.append(_in_memory(some))
        images, targets = (torch.cat([getattr(part, name) for part in chosen]) for name in ("images", "labels"))
        self.exemplars.add(ImageData(images, targets), self.method.network.head.classes)
        self.method.each_part("kept", phase)


class KeepEverything(Memory):
    """All images of all phases are kept."""

    def room(self) -> Exemplars:
        return Exemplars(None)


def _in_memory(samples: Samples) -> ImageData:
    """Return the images as arrays on the CPU."""
    if isinstance(samples, ImageData | FileData):
        return samples.in_memory()
    raise InputError(f"expected images, got {type(samples).__name__}")
