"""``ImageModel``: a classifier for images that keeps learning without forgetting and detects unknown classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dsal.backbones.backbone import Backbone, read_card
from dsal.backbones.pretrained import DEFAULT, MODULE, as_backbone, stored_backbone
from dsal.base import __version__
from dsal.base.options import EXPANSION_SIZE
from dsal.base.progress import OnProgress
from dsal.classifier import DSALClassifier
from dsal.distributed import ALONE, Team
from dsal.errors import FileFormatError, InputError
from dsal.files.atomic import StrPath
from dsal.files.model_schema import IMAGE_MODEL
from dsal.files.tensors import load_tensors, under
from dsal.image_model.graph_features import Known
from dsal.image_model.image_features import BackboneFeatures
from dsal.image_model.image_predictor import ImagePredictor
from dsal.image_model.learned_state import LearnedState
from dsal.image_model.novelty import ClassStatistics
from dsal.image_model.novelty_reference import NoveltyReference
from dsal.image_model.outcomes import THRESHOLD, Evaluation, LeftOut, Lesson, PredictionList
from dsal.image_model.seen import Seen
from dsal.image_model.sources import (
    Images,
    Labelled,
    LabelledImages,
    check_class_name,
    content_keys,
    describe,
    labelled_images,
    listed,
    plural,
    unlabelled_images,
)
from dsal.image_model.stored_model import StoredModel
from dsal.image_model.version import AnyArray, Timeline, Version, in_memory, next_id

GAMMA = 100.0
"""Ridge penalty of new image models, chosen by benchmarks/few_images.py: see docs/photo-results.md."""


class ImageModel:
    """A frozen backbone, a :class:`~dsal.DSALClassifier` on its features, and novelty statistics.

    If a call raises, the model is unchanged. New models are made here and nowhere else, so that those of Python, the
    command line and the server are alike.

    Args:
        backbone: a name (see ``dsal.backbones.pretrained``), a :class:`~dsal.backbones.Backbone`, or any ``nn.Module``.
        classifier: an unfitted classifier of your own, instead of the following three options.
        expansion_size: d_B: larger is more accurate; memory grows quadratically.
        gamma: ridge penalty, or ``"auto"``.
        seed: seed of the random expansion.
        device: where the backbone runs.
        team: the processes that learn together.

    Attributes:
        notes: anything that a program wants to store with the model, as JSON; :meth:`forget` clears it.
        timeline: the states that :meth:`undo` and :meth:`redo` return to.
        version: version of dsal that created the model or wrote its file.
    """

    def __init__(
        self,
        backbone: str | Backbone | nn.Module = DEFAULT,
        classifier: DSALClassifier | None = None,
        device: str | torch.device = "cpu",
        *,
        expansion_size: int = EXPANSION_SIZE,
        gamma: float | str = GAMMA,
        seed: int = 0,
        team: Team = ALONE,
    ) -> None:
        if classifier is None:
            classifier = DSALClassifier(expansion_size, gamma, random_state=seed)
        elif (expansion_size, gamma, seed) != (EXPANSION_SIZE, GAMMA, 0):
            raise InputError("give either a classifier, or expansion_size, gamma and seed")
        self.backbone = as_backbone(backbone).to(device)
        self.team = classifier.team = team
        self._learned = LearnedState(classifier, self.backbone.widths["stages"])
        self.timeline = Timeline(next_id("", "new", (), {}))
        self.notes: dict[str, Any] = {}
        self.version = __version__

    @property
    def classifier(self) -> DSALClassifier:
        """The classifier on the features."""
        return self._learned.classifier

    @property
    def statistics(self) -> ClassStatistics:
        """Sums over the features of each class."""
        return self._learned.statistics

    @property
    def reference(self) -> NoveltyReference:
        """Scores of images of known classes, used to rate novelty."""
        return self._learned.reference

    @property
    def left_out(self) -> LeftOut:
        """Number of images by true class (first key) and predicted class (second key).

        Each image is predicted by the main stream at the time of its lesson, as if it had not been learned. Not counted
        while there is only one class.
        """
        return self._learned.left_out

    @property
    def seen(self) -> Seen:
        """Hashes of the learned images, with their labels."""
        return self._learned.seen

    @property
    def version_id(self) -> str:
        """Identifies the learned state; every change sets a new one, and undo and redo return to old ones."""
        return self.timeline.id

    @property
    def history(self) -> tuple[Version, ...]:
        """The states before the last changes, newest first, for :meth:`undo`."""
        return self.timeline.history

    @property
    def undone(self) -> tuple[Version, ...]:
        """The states that :meth:`redo` returns to, newest first."""
        return self.timeline.undone

    @property
    def history_bytes(self) -> int:
        """Bytes that the states for undo and redo take, in memory and in the file."""
        return self.timeline.nbytes

    @property
    def learns_on(self) -> bool:
        """Whether the model can learn, merge and forget; False if it was saved with ``learning=False``."""
        return not self._learned.taught or self.classifier.learns_on

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels in the order in which they were learned."""
        return self._learned.classes

    @property
    def counts(self) -> dict[str, int]:
        """Number of learned images of each class."""
        return dict(zip(self.classes, self.statistics.counts.round().astype(int).tolist(), strict=True))

    def learn(
        self, source: Labelled, *, again: bool = False, broken: str = "stop", progress: OnProgress | None = None
    ) -> Lesson:
        """Learn a phase: new classes, more images of known ones, or both.

        Images that were learned before are recognised by their content and skipped, so you can pass a growing folder
        again and again.

        Args:
            source: ``FOLDER/<class>/*``, a zip of it, a CSV of paths and labels, or a pair (images, labels). Images
                are paths, bytes of image files, Pillow images or uint8 arrays.
            again: whether to learn images again that were learned before; they then count twice.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, total images).
        """
        given = labelled_images(source)
        for label in dict.fromkeys(given.labels):
            check_class_name(label)
        known: Known = (lambda key: False) if again else self.seen.__contains__
        found = self._features().collect(given.images, broken=broken, known=known, progress=progress)
        position = {row: i for i, row in enumerate(found.rows.tolist())}
        read = [row for row in sorted(found.keys) if row in position or known(found.keys[row])]
        keys, labels = [found.keys[row] for row in read], [given.labels[row] for row in read]
        plan = self.seen.plan(keys, labels, again)
        moved = tuple((describe(given.images[read[i]]), labels[i], old) for i, old in plan.moved)
        lesson = Lesson(0, (), (), (), float("nan"))
        if plan.new:
            x = found.x[[position[read[i]] for i in plan.new]]
            lesson = self.learn_features(x, np.array(labels)[plan.new], [keys[i] for i in plan.new])
        return replace(lesson, broken=found.broken, repeated=plan.repeated, duplicates=plan.duplicates, moved=moved)

    def learn_features(
        self, x: NDArray[np.float32], y: NDArray[Any], keys: Sequence[bytes | None] | None = None
    ) -> Lesson:
        """Learn a phase of features (n, d) from ``backbone.extract``, with labels (n,).

        ``keys`` identify the images (:func:`~dsal.image_model.sources.content_keys`); without them, repeated images are
        not recognised.
        """
        with self._change(f"learned {plural(len(y), 'image')} of {listed(sorted(set(y.tolist())))}"):
            return self._learned.learn(x, y, [None] * len(y) if keys is None else keys)

    def predict(
        self,
        images: Images,
        *,
        top_k: int = 5,
        threshold: float = THRESHOLD,
        broken: str = "stop",
        progress: OnProgress | None = None,
    ) -> PredictionList:
        """Predict the labels of images, with probabilities and novelty.

        Args:
            images: a file, a folder (all images below it), bytes of an image file, a Pillow image, a uint8 array
                (h, w, 3), or several of them.
            top_k: how many of the most likely classes to return per image.
            threshold: novelty above which an image is flagged as novel.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, total images).
        """
        return self.predictor().predict(images, top_k=top_k, threshold=threshold, broken=broken, progress=progress)

    def evaluate(self, source: Labelled, *, broken: str = "stop", progress: OnProgress | None = None) -> Evaluation:
        """Compare predictions with labels; images of classes that were never taught should be flagged as novel."""
        return self.predictor().evaluate(source, broken=broken, progress=progress)

    def suggest(
        self, images: Images, count: int = 20, *, broken: str = "stop", progress: OnProgress | None = None
    ) -> PredictionList:
        """Suggest unlabelled images worth labelling, the most useful first, with their predictions.

        They are typical of what the model is unsure of, and diverse; fewer are the first of more. Images that were
        learned before and duplicates are left out. See :func:`~dsal.image_model.image_predictor.most_useful`.

        Args:
            images: as in :meth:`predict`.
            count: how many to suggest.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, total images).
        """
        return self.predictor().suggest(images, count, broken=broken, progress=progress)

    def predictor(self) -> ImagePredictor:
        """Return what predicts, evaluates and suggests; later changes of the model do not affect it."""
        self._learned.check_taught()
        return ImagePredictor(self._features(), self._learned.predictor(), self.seen)

    def forget(self, source: Labelled, *, broken: str = "stop", progress: OnProgress | None = None) -> int:
        """Forget learned images: nothing in the model, or in a file that is then saved, depends on them any more.

        The main stream and the class statistics become what they would be without the images. The rest cannot be
        corrected and is removed: the compensation stream, the history (so this change cannot be undone), leave-one-out
        counts and notes. Probabilities and novelty are estimated from the remaining sums until more is learned. See
        :meth:`dsal.DSALClassifier.forget`.

        Returns:
            The number of images forgotten.
        """
        self._learned.check_taught()
        given = labelled_images(source)
        keys = content_keys(given.images)
        self._check_seen(given, keys)
        found = self._features().collect(given.images, broken=broken, progress=progress)
        return self.forget_features(found.x, np.array(given.labels)[found.rows], [keys[row] for row in found.rows])

    def forget_features(self, x: NDArray[np.float32], y: NDArray[Any], keys: Sequence[bytes | None]) -> int:
        """:meth:`forget` for features (n, d), as they were given to :meth:`learn_features`; return their number."""
        with self._change(f"forgot {plural(len(y), 'image')} of {listed(sorted(set(y.tolist())))}"):
            self._learned.forget(x, y, keys)
        self.timeline, self.notes = Timeline(self._next_id("", "forgot")), {}  # they may contain traces of the images
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

        The old label is looked up by the content of the image. The compensation stream cannot be corrected, so the
        model predicts with the main stream alone unless ``keep_compensation``.

        Args:
            source: images if ``new_label`` is given; otherwise images with their right labels (see :meth:`learn`).
                Images that were already learned under their right label do not change, and the labels must be classes
                of the model.
            new_label: the right label of all images.
            keep_compensation: whether to keep using the compensation stream.
            broken: ``"stop"`` or ``"skip"``: what to do with images that cannot be read.
            progress: called with (images read, total images).

        Returns:
            The number of images whose label changed.
        """
        self._learned.check_taught()
        if new_label is None:
            given = labelled_images(source)  # type: ignore[arg-type]
        else:
            check_class_name(new_label)
            images = unlabelled_images(source)  # type: ignore[arg-type]
            given = LabelledImages(images, (new_label,) * len(images))
        keys = content_keys(given.images)
        learned = [self.seen.labels(key) for key in keys]
        unknown = [image for image, labels in zip(given.images, learned, strict=True) if not labels]
        if unknown and new_label is not None:
            raise InputError(f"{_subject(unknown)} never learned: learn them under the right label instead")
        rows = [row for row, labels in enumerate(learned) if labels and given.labels[row] not in labels]
        strange = [row for row in rows if given.labels[row] not in self.classes]
        if strange and new_label is None:  # the folder of a renamed class would silently bring its old name back
            label, now = given.labels[strange[0]], learned[strange[0]][0]
            raise InputError(
                f"the model has no class {label!r}; it knows these images as {now!r}. If that is its new name, rename "
                f"the folder, too; to move them to a new class, name it: --to {label!r}, in Python new_label"
            )
        if not rows:
            return 0
        wrong = given.take(rows)
        found = self._features().collect(wrong.images, broken=broken, progress=progress)
        found_keys = [keys[rows[row]] for row in found.rows]
        return self.relabel_features(found.x, np.array(wrong.labels)[found.rows], found_keys, keep_compensation)

    def relabel_features(
        self, x: NDArray[np.float32], y: NDArray[Any], keys: Sequence[bytes | None], keep_compensation: bool = False
    ) -> int:
        """:meth:`relabel` for features (n, d) whose labels are to become ``y`` (n,); return their number."""
        old = np.array([self.seen.labels(key)[0] for key in keys])
        with self._change(f"relabelled {plural(len(y), 'image')} as {listed(sorted(set(y.tolist())))}"):
            self._learned.relabel(x, old, y, keys, keep_compensation)
        return len(y)

    def rename(self, old: str, new: str) -> None:
        """Rename a class. Nothing else changes."""
        self._edit(lambda now: now.renamed(old, new))

    def drop(self, label: str) -> None:
        """Remove a class: the model no longer predicts it, unless it is taught again.

        Its images still count as negative examples of the other classes. To remove them completely, use :meth:`forget`,
        which needs the images.
        """
        self._edit(lambda now: now.dropped(label))

    def merge(self, other: ImageModel, *, again: bool = False) -> ImageModel:
        """Add what ``other`` has learned; its images are not needed. See :meth:`dsal.DSALClassifier.merge`.

        The temperature of the probabilities and the novelty reference are estimated from the merged sums, because each
        model measured only its own classes.

        Args:
            other: the other model; it does not change.
            again: whether images that both models have learned may count twice.

        Raises:
            InputError: the models have different backbones or expansions, or images in common.
        """
        self._learned.check_taught()
        other._learned.check_taught()
        if self.backbone.fingerprint() != other.backbone.fingerprint():
            raise InputError(
                f"only models with the same backbone can be merged: {self.backbone.card.architecture} and "
                f"{other.backbone.card.architecture} differ in architecture, weights or preprocessing"
            )
        self.classifier._learner.check_mergeable(other.classifier._learner)
        shared = self.seen.shared(other.seen)
        if shared and not again:
            raise InputError(
                f"both models have learned the same images, {shared} in all, which would count twice: forget them in "
                "one of the models, or allow it with the option 'again'"
            )
        with self._change(f"merged {plural(len(other.classes), 'class')} of another model"):
            self._learned.merge(other._learned)
        return self

    def undo(self, expected_version: str | None = None) -> str:
        """Undo the last change, bit for bit; :meth:`redo` reverts this.

        The last change is one call of :meth:`learn`, :meth:`merge`, :meth:`relabel`, :meth:`rename` or :meth:`drop`.
        Earlier states are part of the model file, up to ``dsal.image_model.version.MAX_BYTES``. :meth:`forget` removes
        them and cannot be undone.

        Args:
            expected_version: the :attr:`version_id` that the caller knows; if it is another one, nothing is undone.

        Returns:
            A description of the change that was undone.

        Raises:
            StaleVersionError: the model is not at ``expected_version``; the error names the changes since.
        """
        self.timeline.check(expected_version)
        return self._go_to(*self.timeline.undo(self._present(self.history)))

    def redo(self, expected_version: str | None = None) -> str:
        """Make the change again that :meth:`undo` undid; arguments, result and errors as there."""
        self.timeline.check(expected_version)
        return self._go_to(*self.timeline.redo(self._present()))

    def save(self, path: StrPath, learning: bool = True) -> None:
        """Write the model to one file, atomically; with ``learning=False``, omit the state needed to learn more.

        A file that another version of dsal wrote is kept beside it, as ``NAME.bak``.
        """
        self._learned.check_taught()
        card, backbone = self.backbone.card, dict[str, AnyArray]()
        if card.architecture != MODULE:  # of a user's own module only the fingerprint is saved
            state = self.backbone.state_dict().items()
            weights = ((name, value) for name, value in state if not name.startswith("head."))
            backbone = {f"backbone.{name}": value.cpu().numpy() for name, value in weights}
        StoredModel(
            card=asdict(card),
            backbone_sha256=self.backbone.fingerprint(),
            fixed={**backbone, **self._learned.expansion()},
            present=self._learned.version(self.version_id, learning=learning, copied=False),
            timeline=self.timeline if learning else Timeline(self.version_id),
            notes=self.notes,
            dsal=self.version,
        ).write(path)
        self.version = __version__

    @classmethod
    def load(
        cls,
        path: StrPath,
        backbone: Backbone | nn.Module | None = None,
        device: str | torch.device = "cpu",
        team: Team = ALONE,
    ) -> ImageModel:
        """Load a model that :meth:`save` wrote.

        Args:
            path: the file.
            backbone: the backbone it was made with; needed only if that was your own ``nn.Module``.
            device: where the backbone runs.
            team: the processes that learn together.
        """
        arrays, facts = load_tensors(path, IMAGE_MODEL)
        try:
            stored = StoredModel.of({**arrays}, facts)
            weights = under(stored.fixed, "backbone").items()
            state = {name: torch.from_numpy(in_memory(value)) for name, value in weights}
            opened = stored_backbone(read_card(stored.card), state, backbone)
            if opened.fingerprint() != stored.backbone_sha256:
                raise InputError(
                    f"{path} was made with another backbone ({stored.card['architecture']}) and cannot be used with "
                    "this one"
                )
            whole = replace(stored.present, arrays={**stored.fixed, **stored.present.arrays})
            model = cls(opened, DSALClassifier(), device, team=team)
            model._learned = LearnedState.of(whole, model._learned.statistics.sums.shape[1], "auto", team, path)
        except (LookupError, TypeError, RuntimeError) as error:
            raise FileFormatError(f"{path} is not a model that this version of dsal can read: {error!r}") from error
        model.timeline, model.notes, model.version = stored.timeline, stored.notes, stored.dsal
        return model

    def _features(self) -> BackboneFeatures:
        return BackboneFeatures(self.backbone, self.team)

    def _present(self, target: Sequence[Version] = ()) -> Version:
        """Return a copy of the state; with the expansion, if no state will have it once the first ``target`` is."""
        present = self._learned.version(self.version_id)
        alone = bool(target) and not target[0].meta
        return replace(present, arrays={**self._learned.expansion(), **present.arrays}) if alone else present

    @contextmanager
    def _change(self, change: str) -> Iterator[None]:
        """Run a change all or nothing, and add it to the history.

        In distributed runs only rank 0, which holds the learned state, restores and records it.
        """
        before = self._present() if self.team.leads else None
        try:
            yield
        except BaseException:
            if before is not None:
                self._learned = self._learned.at(before)
            raise
        if before is not None:
            self.timeline = self.timeline.followed(before, change, self._next_id(self.version_id, change))

    def _edit(self, edit: Callable[[Version], Version]) -> None:
        """Make a change that needs only the arrays of the state."""
        before = self._present()
        after = edit(before)
        self._learned, self.timeline = self._learned.at(after), self.timeline.followed(before, after.change, after.id)

    def _go_to(self, version: Version, timeline: Timeline) -> str:
        self._learned, self.timeline = self._learned.at(version), timeline
        return version.change

    def _next_id(self, before: str, change: str) -> str:
        return next_id(before, change, self.classes, self.seen.arrays(self.classes))

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
    first = describe(images[0])
    return f"{first} was" if len(images) == 1 else f"{len(images)} images ({first}, ...) were"
