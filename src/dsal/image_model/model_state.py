"""State of an image model, with changes that are all or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from dsal.backbones.backbone import Backbone
from dsal.classifier import DSALClassifier
from dsal.data.images.zip_archive import ZipImage
from dsal.distributed import Team
from dsal.errors import InputError, UnknownNameError
from dsal.image_model.left_out_counts import LeftOut
from dsal.image_model.novelty import ClassStatistics, NoveltyReference
from dsal.image_model.seen import Seen
from dsal.image_model.version import Version

HISTORY = 1  # changes that can be undone; each takes as much memory and disk as the learning state of the model


class ModelState:
    """The state of a model; see :class:`~dsal.image_model.model.ImageModel` for the attributes."""

    backbone: Backbone
    classifier: DSALClassifier
    statistics: ClassStatistics
    reference: NoveltyReference
    left_out: LeftOut
    seen: Seen
    history: tuple[Version, ...]
    notes: dict[str, Any]
    version: str
    team: Team

    @property
    def learns_on(self) -> bool:
        """Whether the model can learn, merge and forget; False if it was saved with ``learning=False``."""
        return not self._taught or self.classifier.learns_on

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels in the order in which they were learned."""
        return tuple(self.classifier.classes_.tolist()) if self._taught else ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of learned images of each class."""
        return dict(zip(self.classes, self.statistics.counts.round().astype(int).tolist(), strict=True))

    @property
    def _taught(self) -> bool:
        return self.classifier.__sklearn_is_fitted__()

    def _check_taught(self) -> None:
        if not self._taught:
            raise InputError("the model has learned nothing yet: teach it some images first")

    def _check_known(self, label: str) -> None:
        self._check_taught()
        if label not in self.classes:
            raise UnknownNameError("class", label, self.classes)

    def _main_stream(self) -> DSALClassifier:
        """Return the main stream alone, whose leave-one-out logits are exact; it shares the classifier's state."""
        main = copy(self.classifier)
        main.compensation = 0.0
        return main

    @contextmanager
    def _change(self, change: str) -> Iterator[None]:
        """Run a change all or nothing, and add it to the history.

        In distributed runs only rank 0, which holds the learned state, restores and records it.
        """
        before = Version.of(self, change) if self.team.leads else None
        try:
            yield
        except BaseException:
            if before is not None:
                before.restore(self)
            raise
        if before is not None:
            self.history = (before, *self.history)[:HISTORY]


def listed(labels: Sequence[str]) -> str:
    """Join the first class names for a message."""
    return ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")


def image_name(image: object) -> str:
    """Return the name of an image for a message."""
    return str(image) if isinstance(image, Path | ZipImage) else "an image"
