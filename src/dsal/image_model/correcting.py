"""Corrections of an image model: forget, relabel, rename, drop and undo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsal.base.progress import OnProgress
from dsal.classifier.labels import columns_of
from dsal.errors import InputError
from dsal.image_model.left_out_counts import renamed, restricted
from dsal.image_model.model_state import HISTORY, ModelState, image_name, listed
from dsal.image_model.reading import read_features
from dsal.image_model.sources import (
    Images,
    Labelled,
    LabelledImages,
    content_keys,
    labelled_images,
    unlabelled_images,
)


class Correcting(ModelState):
    """Methods of an image model that remove or change what was learned."""

    def forget(
        self,
        source: Labelled,
        *,
        keep_compensation: bool = False,
        broken: str = "stop",
        progress: OnProgress | None = None,
    ) -> int:
        """Forget learned images; exact in the main stream. See :meth:`dsal.DSALClassifier.forget`.

        The novelty reference (:class:`~dsal.image_model.novelty.NoveltyReference`) does not change.

        Returns:
            The number of images forgotten.
        """
        self._check_taught()
        given = labelled_images(source)
        keys = content_keys(given.images)
        self._check_seen(given, keys)
        found = read_features(self.backbone, given.images, broken=broken, progress=progress, team=self.team)
        x, y = found.x, np.array(given.labels)[found.rows]
        with self._change(f"forgot {len(y)} images of {listed(sorted(set(y.tolist())))}"):
            self._forget(x, y, [keys[row] for row in found.rows], keep_compensation)
        return len(y)

    def relabel(
        self,
        source: Labelled | Images,
        new_label: str | None = None,
        *,
        keep_compensation: bool = False,
        broken: str = "stop",
        progress: OnProgress | None = None,
    ) -> int:
        """Move images that were learned under a wrong label to the right one; exact in the main stream.

        The old label is looked up by the content of the image. As in :meth:`forget`, the compensation stream
        cannot be corrected, so the model predicts with the main stream alone unless ``keep_compensation``.

        Args:
            source: images if ``new_label`` is given; otherwise images with their right labels (see :meth:`learn`).
                Images that were already learned under their right label do not change.
            new_label: the right label of all images.
            keep_compensation: whether to keep using the compensation stream.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, total images).

        Returns:
            The number of images whose label changed.
        """
        self._check_taught()
        if new_label is None:
            given = labelled_images(source)  # type: ignore[arg-type]
        else:
            images = unlabelled_images(source)  # type: ignore[arg-type]
            given = LabelledImages(images, (new_label,) * len(images))
        keys = content_keys(given.images)
        learned = [self.seen.labels(key) for key in keys]
        unknown = [image for image, labels in zip(given.images, learned, strict=True) if not labels]
        if unknown and new_label is not None:
            raise InputError(f"{_subject(unknown)} never learned: learn them under the right label instead")
        rows = [row for row, labels in enumerate(learned) if labels and given.labels[row] not in labels]
        if not rows:
            return 0
        wrong = given.take(rows)
        found = read_features(self.backbone, wrong.images, broken=broken, progress=progress, team=self.team)
        new = np.array(wrong.labels)[found.rows]
        old = np.array([learned[rows[row]][0] for row in found.rows])
        moved_keys = [keys[rows[row]] for row in found.rows]
        with self._change(f"relabelled {len(new)} images as {listed(sorted(set(new.tolist())))}"):
            self.classifier.partial_fit(found.x, new)
            columns = columns_of(new, self.classifier.classes_)
            self.statistics = self.statistics.plus(found.x, columns, len(self.classes))
            self.seen = self.seen.plus(moved_keys, new.tolist())
            self._forget(found.x, old, moved_keys, keep_compensation)
        return len(new)

    def rename(self, old: str, new: str) -> None:
        """Rename a class. Nothing else changes."""
        self._check_known(old)
        if not new or new in self.classes:
            raise InputError(f"{new!r} is a class already: choose another name" if new else "the new name is empty")
        with self._change(f"renamed {old} to {new}"):
            self.classifier.rename_class(old, new)
            self.seen = self.seen.renamed(old, new)
            self.left_out = renamed(self.left_out, old, new)

    def drop(self, label: str) -> None:
        """Remove a class: the model no longer predicts it, unless it is taught again.

        Its images still count as negative examples of the other classes. To remove them completely, use :meth:`forget`,
        which needs the images.
        """
        self._check_known(label)
        if len(self.classes) == 1:
            raise InputError(f"{label!r} is the only class and cannot be dropped: create a new model instead")
        column = self.classes.index(label)
        with self._change(f"dropped {label}"):
            self.classifier.drop_class(label)
            self.statistics = self.statistics.without_class(column)
            self.seen = self.seen.renamed(label, None)
            self.left_out = restricted(self.left_out, self.classes)

    def undo(self) -> str:
        """Undo the last change, bit for bit.

        The last change is one call of :meth:`learn`, :meth:`merge`, :meth:`forget`, :meth:`relabel`, :meth:`rename` or
        :meth:`drop`; the previous state is part of the model file.

        Returns:
            A description of the change that was undone.
        """
        if not self.history:
            raise InputError(f"there is nothing to undo (undo depth: {HISTORY})")
        version, *older = self.history
        version.restore(self)
        self.history = tuple(older)
        return version.change

    def _forget(
        self, x: NDArray[np.float32], y: NDArray[Any], keys: Sequence[bytes | None], keep_compensation: bool
    ) -> None:
        """Unlearn features (n, d) with labels (n,)."""
        before = self.classes
        columns = columns_of(y, self.classifier.classes_)
        self.classifier.forget(x, y, keep_compensation=keep_compensation)
        kept = columns_of(self.classifier.classes_, np.array(before))
        self.statistics = self.statistics.plus(x, columns, len(before), sign=-1.0).kept(kept)
        self.seen = self.seen.minus(keys, y.tolist())
        self.left_out = restricted(self.left_out, self.classes)

    def _check_seen(self, given: LabelledImages, keys: Sequence[bytes | None]) -> None:
        """Raise InputError if an image was never learned: forgetting it would corrupt the sums."""
        if not len(self.seen):
            return  # learned as features, without keys
        unseen = [
            image
            for image, key, label in zip(given.images, keys, given.labels, strict=True)
            if key is not None and label in self.classes and label not in self.seen.labels(key)
        ]
        if unseen:
            raise InputError(f"{_subject(unseen)} never learned under that label and cannot be forgotten")


def _subject(images: Sequence[object]) -> str:
    """Return the start of a sentence about images: "x.png was" or "3 images (x.png, ...) were"."""
    first = image_name(images[0])
    return f"{first} was" if len(images) == 1 else f"{len(images)} images ({first}, ...) were"
