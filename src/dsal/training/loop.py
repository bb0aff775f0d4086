"""Base training: one network, trained by backpropagation on the base classes, then frozen for good.

The training itself is :class:`dsal.training.fit.Fit`; here are its data, head and loss, and the card of the result.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dsal.backbones import Backbone, Card, channels_last
from dsal.data import ImageData
from dsal.data.dataset import fingerprint
from dsal.distributed import ALONE, Team
from dsal.errors import InputError
from dsal.progress import Progress
from dsal.training.augment import mixup, quarter_turns, resized
from dsal.training.batchnorm import share_statistics_
from dsal.training.fit import Batch, Fit, Forward
from dsal.training.recipe import Recipe
from dsal.training.sample import pixel_moments, split

EVALUATION_BATCH = 500


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
        data: training images of the whole data set; those of other classes are left alone.
        dataset: its name, for the card.
        classes: labels of the base classes in class order; the head's outputs follow it.
        class_order: name of that order, for the card.
        architecture: name of the network.
        recipe: how to train.
        seed: decides initial weights, batches and augmentation, and which samples are held out.
        held_out: share of each base class kept out of training and used for the reported accuracy.
        start: weights to start from instead of random ones.
        flip: extract features as the mean over an image and its mirror image.
        device: where to train.
        precision: type of the convolutions; the weights stay float32.
        compiled: use ``torch.compile``.
        sync_batchnorm: normalise by statistics of the whole batch rather than of each process' images.
        team: the processes that train together.
    """

    def __init__(
        self,
        data: ImageData,
        *,
        dataset: str,
        classes: tuple[int, ...],
        class_order: str,
        architecture: str,
        recipe: Recipe,
        seed: int = 0,
        held_out: float = 0.0,
        start: Backbone | None = None,
        flip: bool = False,
        device: torch.device,
        precision: torch.dtype = torch.float32,
        compiled: bool = False,
        sync_batchnorm: bool = False,
        team: Team = ALONE,
    ) -> None:
        self.team = team
        position = torch.full((int(data.labels.max()) + 1,), -1)
        position[list(classes)] = torch.arange(len(classes))
        mine = (position[data.labels] >= 0).nonzero().squeeze(1)
        labels = position[data.labels[mine]]
        kept, out = split(labels, held_out, torch.Generator().manual_seed(seed))
        parts = [ImageData(data.images[mine[rows]], labels[rows]) for rows in (kept, out)]
        self.fingerprint = fingerprint(*parts)
        self.train, self.held_out = (ImageData(part.images.to(device), part.labels.to(device)) for part in parts)
        moments = [pixel_moments(channel) for channel in self.train.images.transpose(0, 1)]
        self.recipe, self.seed, self.device = recipe, seed, device
        self.turns = 4 if recipe.rotation_share > 0 else 1
        card = Card(
            architecture=architecture,
            dataset=dataset,
            seen_classes=tuple(classes),
            class_order=class_order,
            in_channels=self.train.images.shape[1],
            size=self.train.images.shape[3],
            mean=tuple(mean for mean, _ in moments),
            std=tuple(std for _, std in moments),
            flip=flip,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = Backbone(card)
            model.head = nn.Linear(model.widths["last"], len(classes) * self.turns)
        if start is not None:
            model.network.load_state_dict(start.network.state_dict())
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
        )
        self.history: list[EpochResult] = []

    def epochs(self, on_step: Callable[[Progress], None] | None = None) -> Iterator[EpochResult]:
        """Train to the end of the recipe, from wherever this training stands, yielding after every epoch."""
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
        """Cross-entropy of what the head says, with the turns, blends and smoothing of the recipe."""
        recipe, images, labels = self.recipe, batch.images, batch.labels
        if recipe.rotation_share:
            images, turns = quarter_turns(images, recipe.rotation_share, batch.generator)
            labels = 4 * labels + turns
        x = resized(self.model.normalise(images), recipe.size(batch.progress))
        partner, share = None, 1.0
        if recipe.mixup:
            x, partner, share = mixup(x, recipe.mixup, batch.generator)
        mine, named = x[batch.mine].contiguous(memory_format=torch.channels_last), labels[batch.mine]
        scores = forward(mine).float()
        loss = functional.cross_entropy(scores, named, label_smoothing=recipe.label_smoothing)
        if partner is not None:
            others = labels[partner][batch.mine]
            other = functional.cross_entropy(scores, others, label_smoothing=recipe.label_smoothing)
            loss = share * loss + (1 - share) * other
        return loss, int((scores.argmax(1) == named).sum())

    @property
    def result(self) -> Backbone:
        """The model whose weights count: the average where the recipe keeps one."""
        return cast(Backbone, self.fit.result)

    @torch.no_grad()
    def accuracy(self, data: ImageData, side: int | None = None) -> float:
        """Percent of images (labels: positions in class order) that the head names rightly.

        Args:
            data: images to name.
            side: size to bring them to first; their own by default.
        """
        model, right = self.result.eval(), torch.zeros(1, dtype=torch.int64)
        mine = data.take(self.team.share(len(data), unit=EVALUATION_BATCH))
        for images, labels in zip(
            mine.images.split(EVALUATION_BATCH), mine.labels.split(EVALUATION_BATCH), strict=True
        ):
            scores = _head(model)(model.network(resized(model.normalise(images), side)))[:, :: self.turns]
            right += int((scores.argmax(1) == labels).sum())
        return 100 * int(self.team.sum_(right)) / len(data)

    def backbone(self, training: dict[str, Any]) -> Backbone:
        """The trained backbone, with feature statistics of the base training data, ready to be saved.

        Args:
            training: what the card shall say of how the weights were made, besides recipe, seed and history.
        """
        model = copy.deepcopy(self.result)
        mine = self.train.images[self.team.share(len(self.train), unit=EVALUATION_BATCH)]
        rows = [model.pooled(images, list(model.widths)[-1]).cpu() for images in mine.split(EVALUATION_BATCH)]
        model.set_statistics(torch.from_numpy(self.team.rows(torch.cat(rows).numpy())))
        head = nn.Linear(model.widths["last"], _head(model).out_features // self.turns)
        head.weight.data = _head(model).weight.data[:: self.turns].clone()
        head.bias.data = _head(model).bias.data[:: self.turns].clone()
        record = {"recipe": asdict(self.recipe), "seed": self.seed, "history": [asdict(r) for r in self.history]}
        model.card = replace(model.card, training={**record, **training})
        model.head = head
        return model.eval()


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
