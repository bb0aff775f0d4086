"""Base training: one network, trained by backpropagation on the base classes, then frozen.

The training itself is :class:`dsal.training.fit.Fit`, its loss :class:`dsal.training.objective.Objective`; this module
adds data, heads and the resulting card.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from dsal.backbones import Backbone, Card, auxiliary_heads, channels_last, without_auxiliary
from dsal.base.progress import Progress
from dsal.data import FileData, ImageData
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.training.augment import SWAPS, resized
from dsal.training.batchnorm import share_statistics_
from dsal.training.fit import Fit
from dsal.training.objective import NetworkWithHeads, Objective, Teachers, head_of
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
        start: weights to start from instead of random ones; with its heads, if those are for these classes.
        teachers: backbones with heads for these classes, for a recipe with distillation. Those that have auxiliary
            heads for the recipe's transforms teach these, too.
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
            auxiliary=recipe.auxiliary,
            transforms=recipe.transforms,
        )
        if data.channels != 3 and {*SWAPS} & {*recipe.transforms}:
            raise InputError(f"{' and '.join(SWAPS)} swap the channels of colour images; these have {data.channels}")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = Backbone(card)
            model.head = nn.Linear(model.widths["last"], len(classes) * self.turns)
            model.auxiliary = auxiliary_heads(card, model.mapped)
        if start is not None:
            _start_from_(model, start)
        known = {head_of(teacher).out_features for teacher in teachers}
        if (recipe.distillation or recipe.relation) and known != {len(classes)}:
            raise InputError(
                f"distillation needs a teacher with a head for these {len(classes)} classes: pass its weights"
            )
        self.teachers = [channels_last(teacher.to(device)).eval() for teacher in teachers]
        self.model = channels_last(model.to(device))
        if sync_batchnorm and self.team.size > 1:
            share_statistics_(self.model)
        heads = 0 if model.auxiliary is None else len(model.auxiliary.heads)
        teaching = Teachers(self.teachers, recipe, heads, lambda: self.fit.autocast())
        self.objective = Objective(self.model, recipe, teaching, self.turns)
        self.fit = Fit(
            self.model,
            self.train,
            self.objective,
            recipe,
            seed=seed,
            device=device,
            precision=precision,
            forward=NetworkWithHeads(self.model, every=bool(recipe.auxiliary or recipe.relation), compiled=compiled),
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
            scores = head_of(model)(model.network(x))[:, :: self.turns]
            correct += int((scores.argmax(1).cpu() == labels.cpu()).sum())
        return 100 * int(self.team.sum_(correct)) / len(data)

    def backbone(self, training: dict[str, Any], *, auxiliary: bool = False) -> Backbone:
        """Return the trained backbone, with feature statistics of the base training data, ready to be saved.

        Args:
            training: what the card records about the training, besides recipe, seed and history.
            auxiliary: keep the auxiliary heads, for students; features do not need them.
        """
        model = copy.deepcopy(self.result)
        if not auxiliary:
            model = without_auxiliary(model)
        some, widest = _some(self.train, FEATURE_FILES), list(model.widths)[-1]
        mine = some.take(self.team.share(len(some), unit=EVALUATION_BATCH))
        rows = [model.pooled(images, widest).cpu() for images, _ in mine.batches(EVALUATION_BATCH)]
        pooled = torch.cat([torch.empty(0, model.widths[widest]), *rows])
        model.set_statistics(torch.from_numpy(self.team.rows(pooled.numpy())))
        head = nn.Linear(model.widths["last"], head_of(model).out_features // self.turns)
        head.weight.data = head_of(model).weight.data[:: self.turns].clone()
        head.bias.data = head_of(model).bias.data[:: self.turns].clone()
        record = {"recipe": asdict(self.recipe), "seed": self.seed, "history": [asdict(r) for r in self.history]}
        model.card = replace(model.card, training={**record, **training})
        model.head = head
        return model.eval()


def _some(data: ImageData | FileData, most: int) -> ImageData | FileData:
    """Return all images in memory, or at most ``most`` of those in files, evenly spread."""
    return data.take(every_nth(len(data), most)) if isinstance(data, FileData) else data


def _start_from_(model: Backbone, start: Backbone) -> None:
    """Take over the weights of ``start``; those of a head if it has the same outputs."""
    model.network.load_state_dict(start.network.state_dict())
    if start.head is None or model.head is None or start.card.seen_classes != model.card.seen_classes:
        return
    if start.head.out_features == model.head.out_features:
        model.head.load_state_dict(start.head.state_dict())
    mine, theirs = ((own.card.auxiliary, own.card.transforms) for own in (model, start))
    if model.auxiliary is not None and start.auxiliary is not None and mine == theirs:
        model.auxiliary.load_state_dict(start.auxiliary.state_dict())
