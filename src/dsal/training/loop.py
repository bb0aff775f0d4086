"""Base training: one network, trained by backpropagation on the base classes, then frozen for good.

An epoch draws all its random numbers from a generator seeded by (seed, epoch), so the state at the end of an epoch
(``checkpoint.py`` keeps it) decides all that follows.

In a team of processes each takes every n-th image of a batch, and gradients are averaged (``DistributedDataParallel``).
All draw the same numbers and augment the whole batch, which costs little beside the network: so the batches are those
of a single process, to the pixel.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from dsal.backbones import Backbone, Card, channels_last
from dsal.data import ImageData
from dsal.data.dataset import fingerprint
from dsal.distributed import current
from dsal.errors import DSALError, InputError
from dsal.training.augment import crop_flip, cutout, mixup, quarter_turns, resized, trivial
from dsal.training.batchnorm import share_statistics_
from dsal.training.optimiser import make_optimisers
from dsal.training.recipe import Recipe
from dsal.training.sample import pixel_moments, seed_of, split

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


@dataclass(frozen=True)
class StepProgress:
    """Where the training is, after a step."""

    step: int
    steps: int
    loss: float


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
    ) -> None:
        self.team = current()
        position = torch.full((int(data.labels.max()) + 1,), -1)
        position[list(classes)] = torch.arange(len(classes))
        mine = (position[data.labels] >= 0).nonzero().squeeze(1)
        labels = position[data.labels[mine]]
        kept, out = split(labels, held_out, torch.Generator().manual_seed(seed))
        parts = [ImageData(data.images[mine[rows]], labels[rows]) for rows in (kept, out)]
        self.fingerprint = fingerprint(*parts)
        self.train, self.held_out = (ImageData(part.images.to(device), part.labels.to(device)) for part in parts)
        if len(self.train) < recipe.batch_size:
            raise InputError(f"{len(self.train)} training images cannot fill a batch of {recipe.batch_size}")
        if recipe.batch_size < self.team.size:
            raise InputError(f"a batch of {recipe.batch_size} images is too small for {self.team.size} processes")
        moments = [pixel_moments(channel) for channel in self.train.images.transpose(0, 1)]
        self.recipe, self.seed, self.device, self.precision = recipe, seed, device, precision
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
        self.average = copy.deepcopy(self.model) if recipe.average else None
        self.optimisers = make_optimisers(self.model, recipe)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)
        scores = _Scores(self.model, compiled)
        devices = [device] if device.type == "cuda" else None
        self.scores = DistributedDataParallel(scores, devices) if self.team.size > 1 else scores
        self.history: list[EpochResult] = []

    @property
    def steps_per_epoch(self) -> int:
        """Full batches an epoch; the odd images left over differ from epoch to epoch."""
        return len(self.train) // self.recipe.batch_size

    def epochs(self, on_step: Callable[[StepProgress], None] | None = None) -> Iterator[EpochResult]:
        """Train to the end of the recipe, from wherever this training stands, yielding after every epoch."""
        while len(self.history) < self.recipe.epochs:
            self.history.append(self._epoch(len(self.history), on_step))
            yield self.history[-1]

    def _epoch(self, epoch: int, on_step: Callable[[StepProgress], None] | None) -> EpochResult:
        began, recipe = time.perf_counter(), self.recipe
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch))
        order = torch.randperm(len(self.train), generator=generator).to(self.device)
        steps = self.steps_per_epoch
        loss_sum, correct = 0.0, 0
        self.model.train()
        for number, rows in enumerate(order[: steps * recipe.batch_size].view(steps, -1)):
            done = epoch * steps + number
            progress = done / (steps * recipe.epochs)
            for optimiser in self.optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = group["initial_lr"] * recipe.lr_factor(progress)
                optimiser.zero_grad()
            loss, hits = self._loss(self.train.images[rows], self.train.labels[rows], progress, generator)
            value = loss.item()
            if not math.isfinite(value):
                raise DSALError(f"training diverged in epoch {epoch + 1} (loss {value}); lower the learning rate")
            self.scaler.scale(loss).backward()
            for optimiser in self.optimisers:
                self.scaler.step(optimiser)
            self.scaler.update()
            self._update_average()
            loss_sum, correct = loss_sum + value, correct + hits
            if on_step is not None:
                on_step(StepProgress(done + 1, steps * recipe.epochs, value))
        self._agree()
        totals = torch.tensor([loss_sum / self.team.size, correct], dtype=torch.float64)
        loss_sum, correct = self.team.sum_(totals).tolist()
        return EpochResult(
            epoch=epoch + 1,
            epochs=recipe.epochs,
            loss=loss_sum / steps,
            accuracy=100 * correct / (steps * recipe.batch_size),
            held_out_accuracy=self.accuracy(self.held_out, recipe.size(progress)) if len(self.held_out) else None,
            seconds=time.perf_counter() - began,
        )

    def _loss(self, images: Tensor, labels: Tensor, progress: float, generator: Generator) -> tuple[Tensor, int]:
        """Augment a batch, run the network on this process' images; loss and number of right answers.

        The loss is scaled such that its mean over all processes is that of the batch.
        """
        recipe = self.recipe
        images = crop_flip(images, generator, mirror=recipe.mirror)
        if recipe.trivial:
            images = trivial(images, recipe.trivial, generator)
        if recipe.cutout:
            images = cutout(images, recipe.cutout, generator)
        if recipe.rotation_share:
            images, turns = quarter_turns(images, recipe.rotation_share, generator)
            labels = 4 * labels + turns
        x = self.model.normalise(images)
        x = resized(x, recipe.size(progress))
        partner, share = None, 1.0
        if recipe.mixup:
            x, partner, share = mixup(x, recipe.mixup, generator)
        mine = slice(self.team.rank, None, self.team.size)  # not neighbours: the first of a batch are those turned
        mates, named = x[mine].contiguous(memory_format=torch.channels_last), labels[mine]
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            scores = self.scores(mates).float()
        loss = functional.cross_entropy(scores, named, label_smoothing=recipe.label_smoothing)
        if partner is not None:
            other = functional.cross_entropy(scores, labels[partner][mine], label_smoothing=recipe.label_smoothing)
            loss = share * loss + (1 - share) * other
        return loss * (self.team.size * len(mates) / len(x)), int((scores.argmax(1) == named).sum())

    @torch.no_grad()
    def _update_average(self) -> None:
        if self.average is None:
            return
        decay = self.recipe.average
        for mean, value in zip(self.average.state_dict().values(), self.model.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)

    def _agree(self) -> None:
        """Give all processes the running statistics of rank 0; their weights are equal anyway."""
        if self.team.size > 1:
            for model in (self.model,) if self.average is None else (self.model, self.average):
                for buffer in model.buffers():
                    self.team.broadcast_(buffer)

    @property
    def result(self) -> Backbone:
        """The model whose weights count: the average where the recipe keeps one."""
        return self.model if self.average is None else self.average

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
