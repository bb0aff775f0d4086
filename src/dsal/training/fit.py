"""Backpropagation for any loss: a recipe's optimisers, schedule, augmentation, precision and average of weights.

An epoch draws all its random numbers from a generator seeded by (seed, epoch), whose state is among
:meth:`Fit.arrays`: a training stopped after any step continues to the same weights (same machine, same number
of threads). With ``Recipe.views``, epochs repeat: epoch + views draws what epoch drew.

Of n processes each takes every n-th image of a batch, and gradients are averaged (``DistributedDataParallel``). All
draw the same numbers, so the batches are those of a single process, to the pixel. With images in memory, each process
augments the whole batch, which is cheap compared with the network. With images in files, each reads and augments only
its own (:mod:`dsal.training.stream`), and operations that mix images (``Batch.generator``) mix those of one process.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dsal.base.progress import Progress
from dsal.data.images.crop_readers import Readers
from dsal.data.images.image_files import FileData
from dsal.data.samples import Samples
from dsal.distributed import ALONE, Team
from dsal.errors import DSALError, InputError
from dsal.training.augment import BatchPart, colour_jitter, crop_flip, cutout, trivial
from dsal.training.optimiser import STATE, make_optimisers
from dsal.training.recipe import Recipe
from dsal.training.sample import seed_of
from dsal.training.stream import Crops, Wanted, default_workers, open_readers

Forward = Callable[[Tensor], Any]
"""The network, in the precision of the training."""


@dataclass(frozen=True)
class Batch:
    """A batch of augmented images, the same in all processes; with images in files, the part that this process reads.

    Attributes:
        images: uint8, (n, C, H, W).
        labels: int64, (n,).
        mine: the images of this process among ``images``; spread over the whole batch, so that whatever was done
            to its first images is shared evenly.
        progress: fraction of the training that is done, in [0, 1).
        generator: for all other random choices.
        number: batches of the same number have the same images, augmented alike: that of the step, unless the
            recipe's ``views`` repeat.
    """

    images: Tensor
    labels: Tensor
    mine: slice
    progress: float
    generator: Generator
    number: int = 0


Loss = Callable[[Forward, Batch], tuple[Tensor, int]]
"""(network, batch) -> (mean loss over the images ``batch.mine``, how many of them were classified correctly)."""


class Fit:
    """One training by backpropagation, and its progress.

    Args:
        module: what is trained; parameters that need no gradient do not change.
        samples: images to train on.
        loss: what is minimised.
        recipe: how to train; labels, ``mixup``, transforms, heads and teachers are up to ``loss``.
        seed: of batches and augmentation.
        device: where ``module`` is.
        precision: type of the convolutions; the weights stay float32.
        forward: what ``loss`` calls; ``module`` itself by default.
        team: the processes that train together.
        workers: processes that read image files; by default the available processors, shared with the other ranks.
    """

    def __init__(
        self,
        module: nn.Module,
        samples: Samples,
        loss: Loss,
        recipe: Recipe,
        *,
        seed: int,
        device: torch.device,
        precision: torch.dtype = torch.float32,
        forward: nn.Module | None = None,
        team: Team = ALONE,
        workers: int | None = None,
    ) -> None:
        if len(samples) < recipe.batch_size:
            raise InputError(f"{len(samples)} training images cannot fill a batch of {recipe.batch_size}")
        if recipe.batch_size < team.size:
            raise InputError(f"a batch of {recipe.batch_size} images is too small for {team.size} processes")
        self.module, self.samples, self.loss, self.recipe = module, samples, loss, recipe
        self.seed, self.device, self.precision, self.team = seed, device, precision, team
        self.workers = default_workers() if workers is None else workers
        self._mine = slice(team.rank, None, team.size)
        self._part = BatchPart(recipe.batch_size, self._mine) if isinstance(samples, FileData) else None
        self.average = copy.deepcopy(module) if recipe.average else None
        self.optimisers = make_optimisers(module, recipe)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)
        self.forward = module if forward is None else forward
        if team.size > 1:
            self.forward = DistributedDataParallel(self.forward, [device] if device.type == "cuda" else None)
        self.done = 0
        self._loss_sum, self._hits = 0.0, 0  # of the epoch so far
        self._random = torch.empty(0, dtype=torch.uint8)  # state of the epoch's generator

    @property
    def steps_per_epoch(self) -> int:
        """Full batches per epoch; the images left over differ from epoch to epoch."""
        return len(self.samples) // self.recipe.batch_size

    @property
    def total(self) -> int:
        """Total number of steps."""
        return self.steps_per_epoch * self.recipe.epochs

    @property
    def result(self) -> nn.Module:
        """The module with the final weights: the average if the recipe keeps one."""
        return self.module if self.average is None else self.average

    def _view(self, epoch: int) -> int:
        """Return the number of the epoch with the same batches: its own, unless views repeat."""
        return epoch % self.recipe.views if self.recipe.views else epoch

    def steps(self) -> Iterator[Progress]:
        """Train from the current step to the end of the recipe, yielding after every step."""
        with self._readers() as readers:
            while self.done < self.total:
                yield from self._epoch(readers)

    def _epoch(self, readers: Readers | None) -> Iterator[Progress]:
        """Train from the current step to the end of its epoch."""
        steps = self.steps_per_epoch
        epoch, number = divmod(self.done, steps)
        generator = torch.Generator().manual_seed(seed_of(self.seed, self._view(epoch)))
        order = torch.randperm(len(self.samples), generator=generator).to(self.samples.labels.device)
        if number:
            generator.set_state(self._random)
        else:
            self._loss_sum, self._hits = 0.0, 0
        for images, labels in self._batches(epoch, order, readers):
            value = self._step(images.to(self.device), labels.to(self.device), generator)
            self.done += 1
            self._random = generator.get_state()
            if self.done % steps == 0:
                self._sync_buffers()
            yield Progress(self.done, self.total, f"epoch {epoch + 1}/{self.recipe.epochs}  loss {value:.2f}")

    def _readers(self) -> AbstractContextManager[Readers | None]:
        """Return the processes that read image files; none for images in memory."""
        if not isinstance(self.samples, FileData):
            return nullcontext()
        share = math.ceil(self.recipe.batch_size / self.team.size)
        largest = max(self.samples.size, *(side for _, side in self.recipe.sizes), 0)
        return open_readers(self.workers, share, largest, self.samples.channels)

    def _batches(self, epoch: int, order: Tensor, readers: Readers | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels of the rest of an epoch: whole batches, or this process's part of them with files."""
        recipe, steps, size = self.recipe, self.steps_per_epoch, self.recipe.batch_size
        if readers is None or not isinstance(self.samples, FileData):
            yield from self.samples.batches(size, order[self.done % steps * size : steps * size])
            return
        random, side = recipe.crop == "resized", self.samples.size
        crops = Crops(self.samples, seed_of(self.seed, self._view(epoch)), random, recipe.mirror)
        wanted = []
        for step, at in enumerate(torch.arange(len(order)).split(size)[self.done % steps : steps], start=self.done):
            smaller = recipe.size(step / self.total) if random else None
            wanted.append(Wanted(order[at][self._mine], at[self._mine], smaller or side))
        yield from crops.batches(wanted, readers)

    def means(self) -> tuple[float, float]:
        """Return mean loss and accuracy (percent) of the epoch so far, on augmented images, over all processes."""
        totals = torch.tensor([self._loss_sum / self.team.size, self._hits], dtype=torch.float64)
        loss_sum, hits = self.team.sum_(totals).tolist()
        steps = (self.done - 1) % self.steps_per_epoch + 1
        return loss_sum / steps, 100 * hits / (steps * self.recipe.batch_size)

    def autocast(self) -> torch.autocast:
        """Return a context in which networks run in the precision of the training."""
        return torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32)

    def _step(self, images: Tensor, labels: Tensor, generator: Generator) -> float:
        recipe, progress = self.recipe, self.done / self.total
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["initial_lr"] * recipe.lr_factor(progress)
            optimiser.zero_grad()
        self.module.train()
        images = augmented(images, recipe, generator, self._part)
        mine = self._mine if self._part is None else slice(None)
        epoch, step = divmod(self.done, self.steps_per_epoch)
        number = self._view(epoch) * self.steps_per_epoch + step
        if self._part is not None and self.team.size > 1:  # parts may differ in size: their draws must not matter
            generator = torch.Generator().manual_seed(seed_of(seed_of(self.seed, number), self.team.rank))
        loss, hits = self.loss(self._run, Batch(images, labels, mine, progress, generator, number))
        # scaled so that its mean over all processes is that of the batch
        loss = loss * (self.team.size * len(labels[mine]) / recipe.batch_size)
        value = loss.item()
        if not math.isfinite(value):
            raise DSALError(f"training diverged in epoch {epoch + 1} (loss {value}); lower the learning rate")
        self.scaler.scale(loss).backward()
        for optimiser in self.optimisers:
            self.scaler.step(optimiser)
        self.scaler.update()
        self._update_average()
        self._loss_sum, self._hits = self._loss_sum + value, self._hits + hits
        return value

    def _run(self, x: Tensor) -> Any:
        with self.autocast():
            return self.forward(x)

    @torch.no_grad()
    def _update_average(self) -> None:
        # torch.optim.swa_utils would start from the weights after the first step, and average integers too.
        if self.average is None:
            return
        decay = self.recipe.average
        for mean, value in zip(self.average.state_dict().values(), self.module.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)

    def _sync_buffers(self) -> None:
        """Give all processes the running statistics of rank 0; their weights are equal anyway."""
        if self.team.size > 1:
            for model in (self.module,) if self.average is None else (self.module, self.average):
                for buffer in model.buffers():
                    self.team.broadcast_(buffer)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of what the rest of the training depends on, besides the module's weights and :meth:`facts`."""
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        tensors = {
            f"{part}.{names[id(parameter)]}": state[key]
            for optimiser in self.optimisers
            for parameter, state in optimiser.state.items()
            for part, key in STATE.items()
            if state.get(key) is not None
        }
        if self.average is not None:
            tensors |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        if self.done % self.steps_per_epoch:
            tensors["random"] = self._random
        return {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}

    def facts(self) -> dict[str, Any]:
        """Return the rest of the state, as JSON values."""
        return {"done": self.done, "loss": self._loss_sum, "hits": self._hits, "scaler": self.scaler.state_dict()}

    def gather_sums_(self) -> None:
        """Move the losses and hits of all ranks so far to rank 0; all ranks must call it.

        Then :meth:`facts` of rank 0 cover all ranks; the means of the epoch do not change.
        """
        totals = self.team.sum_(torch.tensor([self._loss_sum, self._hits], dtype=torch.float64)).tolist()
        self._loss_sum, self._hits = (totals[0], int(totals[1])) if self.team.leads else (0.0, 0)

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`arrays` and :meth:`facts` returned; the weights must already be loaded."""
        parameters = dict(self.module.named_parameters())
        owners = {id(p): some for some in self.optimisers for group in some.param_groups for p in group["params"]}
        averages = {}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            value = torch.from_numpy(array.copy())
            if part == "random":
                self._random = value
            elif part == "average":
                averages[rest] = value.to(self.device)
            elif part in STATE:
                parameter = parameters[rest]
                own = owners[id(parameter)].state[parameter]
                own[STATE[part]] = value if part == "step" else value.to(self.device)  # Adam counts steps on the CPU
        if self.average is not None:
            self.average.load_state_dict(averages)
        self.scaler.load_state_dict(facts["scaler"])
        self.done, self._loss_sum, self._hits = facts["done"], facts["loss"], facts["hits"]


def augmented(images: Tensor, recipe: Recipe, generator: Generator, part: BatchPart | None = None) -> Tensor:
    """Augment uint8 images (n, c, h, w) as in the recipe; labels do not change.

    Args:
        images: a whole batch from memory, or the ``part`` of a batch that was read from files.
        recipe: how to augment.
        generator: source of random numbers.
        part: which part of the batch; images that were cropped at random while reading are not shifted.
    """
    if part is None or recipe.crop == "shift":
        images = crop_flip(images, generator, mirror=recipe.mirror, part=part)
    if recipe.jitter:
        images = colour_jitter(images, recipe.jitter, generator, part)
    if recipe.trivial:
        images = trivial(images, recipe.trivial, generator, part)
    return cutout(images, recipe.cutout, generator, part) if recipe.cutout else images
