"""Base training: one network, trained by backpropagation on the base classes, then frozen.

The training itself is :class:`dsal.training.fit.Fit`; this module adds its data, head, loss and the resulting card.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dsal.backbones import Backbone, Card, channels_last
from dsal.base.progress import Progress
from dsal.data import FileData, ImageData
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.training.augment import mixup, quarter_turns, resized
from dsal.training.batchnorm import share_statistics_
from dsal.training.fit import Batch, Fit, Forward
from dsal.training.recipe import Recipe
from dsal.training.sample import content_fingerprint, every_nth, on_device, pixel_moments, split

EVALUATION_BATCH = 500
PIXEL_FILES, FEATURE_FILES = 2_000, 10_000
"""Numbers of image files, evenly spread, for statistics of pixels and features; images in memory are all used."""


@dataclass(frozen=True)
class EpochResult:
    """One epoch of base training; accuracies in percent."""

    epoch: int  # 1 for the first
    epochs: int
    loss: float
    accuracy: float  # on the training images as augmented
    held_out_accuracy: float | None  # on the part of the base training data that is kept out of training
    seconds: float


class BaseTraining:
    """The state of one base training, and how it advances.

    Args:
        data: training images of the whole data set; those of other classes are ignored. Images in files stay
            there: only a few batches are in memory.
        dataset: its name, for the card.
        classes: labels of the base classes in class order; the head's outputs follow it.
        class_order: name of that order, for the card.
        architecture: name of the network.
        recipe: how to train.
        seed: decides initial weights, batches and augmentation, and which samples are held out.
        held_out: fraction of each base class kept out of training and used for the reported accuracy.
        start: weights to start from instead of random ones; with its head, if that is for these classes.
        teachers: backbones with heads for these classes, for a recipe with distillation.
        flip: extract features as the mean over an image and its mirror image.
        shift: extract features as a mean over the image and shifts by so many pixels, see :class:`Card`.
        device: where to train.
        precision: type of the convolutions; the weights stay float32.
        compiled: use ``torch.compile``.
        sync_batchnorm: normalise by statistics of the whole batch rather than of each process's images.
        team: the processes that train together.
        workers: processes that read image files; by default the available processors, shared with the other ranks.
    """

    def __init__(
        self,
        data: ImageData | FileData,
        *,
        dataset: str,
        classes: tuple[int, ...],
        class_order: str,
        architecture: str,
        recipe: Recipe,
        seed: int = 0,
        held_out: float = 0.0,
        start: Backbone | None = None,
        teachers: Sequence[Backbone] = (),
        flip: bool = False,
        shift: int = 0,
        device: torch.device,
        precision: torch.dtype = torch.float32,
        compiled: bool = False,
        sync_batchnorm: bool = False,
        team: Team = ALONE,
        workers: int | None = None,
    ) -> None:
        self.team = team
        position = torch.full((int(data.labels.max()) + 1,), -1)
        position[list(classes)] = torch.arange(len(classes))
        mine = (position[data.labels] >= 0).nonzero().squeeze(1)
        labels = position[data.labels[mine]]
        kept, out = split(labels, held_out, torch.Generator().manual_seed(seed))
        parts = [data.take(mine[rows]).relabel(labels[rows]) for rows in (kept, out)]
        self.fingerprint = team.broadcast_result(partial(content_fingerprint, *parts))
        self.train, self.held_out = (on_device(part, device) for part in parts)
        moments = team.broadcast_result(lambda: pixel_moments(_some(self.train, PIXEL_FILES)))
        self.recipe, self.seed, self.device = recipe, seed, device
        self.turns = 4 if recipe.rotation_share > 0 else 1
        card = Card(
            architecture=architecture,
            dataset=dataset,
            seen_classes=tuple(classes),
            class_order=class_order,
            in_channels=data.channels,
            size=data.size,
            mean=tuple(mean for mean, _ in moments),
            std=tuple(std for _, std in moments),
            flip=flip,
            shift=shift,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = Backbone(card)
            model.head = nn.Linear(model.widths["last"], len(classes) * self.turns)
        if start is not None:
            model.network.load_state_dict(start.network.state_dict())
            if start.head is not None and start.card.seen_classes == card.seen_classes and self.turns == 1:
                model.head.load_state_dict(start.head.state_dict())
        if recipe.distillation and {_head(teacher).out_features for teacher in teachers} != {len(classes)}:
            raise InputError(
                f"distillation needs a teacher with a head for these {len(classes)} classes: pass its weights"
            )
        self.teachers = [channels_last(teacher.to(device)).eval() for teacher in teachers]
        self._taught: dict[int, Tensor] = {}  # probabilities of the teachers by number of the batch, if views repeat
        self.model = channels_last(model.to(device))
        if sync_batchnorm and self.team.size > 1:
            share_statistics_(self.model.network)
        self.fit = Fit(
            self.model,
            self.train,
            self._loss,
            recipe,
            seed=seed,
            device=device,
            precision=precision,
            forward=_Scores(self.model, compiled),
            team=team,
            workers=workers,
        )
        self.history: list[EpochResult] = []

    def epochs(self, on_step: Callable[[Progress], None] | None = None) -> Iterator[EpochResult]:
        """Train from the current epoch to the end of the recipe, yielding after every epoch."""
        steps, began = self.fit.steps_per_epoch, time.perf_counter()
        for progress in self.fit.steps():
            if on_step is not None:
                on_step(progress)
            if progress.done % steps:
                continue
            loss, accuracy = self.fit.means()
            side = self.recipe.size((progress.done - 1) / progress.total)
            self.history.append(
                EpochResult(
                    epoch=progress.done // steps,
                    epochs=self.recipe.epochs,
                    loss=loss,
                    accuracy=accuracy,
                    held_out_accuracy=self.accuracy(self.held_out, side) if len(self.held_out) else None,
                    seconds=time.perf_counter() - began,
                )
            )
            yield self.history[-1]
            began = time.perf_counter()

    def _loss(self, forward: Forward, batch: Batch) -> tuple[Tensor, int]:
        """Compute the cross-entropy of the head's scores, with the rotations, blends and smoothing of the recipe."""
        recipe, images, labels = self.recipe, batch.images, batch.labels
        if recipe.rotation_share:
            images, turns = quarter_turns(images, recipe.rotation_share, batch.generator)
            labels = 4 * labels + turns
        x = resized(self.model.normalise(images), recipe.size(batch.progress))
        partner, weight = None, 1.0
        if recipe.mixup:
            x, partner, weight = mixup(x, recipe.mixup, batch.generator)
        mine, targets = x[batch.mine].contiguous(memory_format=torch.channels_last), labels[batch.mine]
        scores = forward(mine).float()
        loss = functional.cross_entropy(scores, targets, label_smoothing=recipe.label_smoothing)
        if recipe.distillation:
            upright = targets % self.turns == 0  # teachers do not know rotated images
            taught = self._ask_teachers(mine[upright], batch.number)
            loss = torch.lerp(loss, self._distillation(scores[upright], taught), recipe.distillation)
        if partner is not None:
            other_targets = labels[partner][batch.mine]
            other = functional.cross_entropy(scores, other_targets, label_smoothing=recipe.label_smoothing)
            loss = weight * loss + (1 - weight) * other
        return loss, int((scores.argmax(1) == targets).sum())

    def _distillation(self, scores: Tensor, taught: Tensor) -> Tensor:
        """Compute the cross-entropy to the teachers' probabilities, scaled so that gradients keep their size."""
        temperature = self.recipe.temperature
        return temperature**2 * functional.cross_entropy(scores[:, :: self.turns] / temperature, taught)

    @torch.no_grad()
    def _ask_teachers(self, x: Tensor, number: int) -> Tensor:
        """Return the mean of the teachers' probabilities for images; with repeating views, each is asked once."""
        if number in self._taught:
            return self._taught[number]
        with self.fit.autocast():
            scores = torch.stack([_head(teacher)(teacher.network(x)) for teacher in self.teachers]).float()
        probabilities = (scores / self.recipe.temperature).softmax(dim=2).mean(dim=0)
        if self.recipe.views:
            self._taught[number] = probabilities
        return probabilities

    @property
    def result(self) -> Backbone:
        """The model with the final weights: the average if the recipe keeps one."""
        return cast(Backbone, self.fit.result)

    @torch.no_grad()
    def accuracy(self, data: ImageData | FileData, side: int | None = None) -> float:
        """Return the percentage of images (labels: positions in class order) that the head classifies correctly.

        Args:
            data: images to classify.
            side: size to resize them to first; their own by default.
        """
        model, correct = self.result.eval(), torch.zeros(1, dtype=torch.int64)
        mine = data.take(self.team.share(len(data), unit=EVALUATION_BATCH))
        for images, labels in mine.batches(EVALUATION_BATCH):
            x = resized(model.normalise(images.to(self.device)), side)
            scores = _head(model)(model.network(x))[:, :: self.turns]
            correct += int((scores.argmax(1).cpu() == labels.cpu()).sum())
        return 100 * int(self.team.sum_(correct)) / len(data)

    def backbone(self, training: dict[str, Any]) -> Backbone:
        """Return the trained backbone, with feature statistics of the base training data, ready to be saved.

        Args:
            training: what the card records about the training, besides recipe, seed and history.
        """
        model = copy.deepcopy(self.result)
        some, widest = _some(self.train, FEATURE_FILES), list(model.widths)[-1]
        mine = some.take(self.team.share(len(some), unit=EVALUATION_BATCH))
        rows = [model.pooled(images, widest).cpu() for images, _ in mine.batches(EVALUATION_BATCH)]
        pooled = torch.cat([torch.empty(0, model.widths[widest]), *rows])
        model.set_statistics(torch.from_numpy(self.team.rows(pooled.numpy())))
        head = nn.Linear(model.widths["last"], _head(model).out_features // self.turns)
        head.weight.data = _head(model).weight.data[:: self.turns].clone()
        head.bias.data = _head(model).bias.data[:: self.turns].clone()
        record = {"recipe": asdict(self.recipe), "seed": self.seed, "history": [asdict(r) for r in self.history]}
        model.card = replace(model.card, training={**record, **training})
        model.head = head
        return model.eval()


def _some(data: ImageData | FileData, most: int) -> ImageData | FileData:
    """Return all images in memory, or at most ``most`` of those in files, evenly spread."""
    return data.take(every_nth(len(data), most)) if isinstance(data, FileData) else data


class _Scores(nn.Module):
    """Head and network as one module: normalised images in, scores out."""

    def __init__(self, model: Backbone, compiled: bool) -> None:
        super().__init__()
        self.model = model
        self.network: Callable[[Tensor], Tensor] = torch.compile(model.network) if compiled else model.network

    def forward(self, x: Tensor) -> Tensor:
        return _head(self.model)(self.network(x))  # type: ignore[no-any-return]


def _head(model: Backbone) -> nn.Linear:
    if model.head is None:
        raise InputError("the model has no head to train")
    return model.head
