"""Backpropagation, whatever the loss: a recipe's optimisers, schedule, augmentation, precision and average of weights.

An epoch draws all its random numbers from a generator seeded by (seed, epoch), whose state is among
:meth:`Fit.arrays`: a training that is stopped after any step continues to the same weights (same machine, same number
of threads).

In a team of processes each takes every n-th image of a batch, and gradients are averaged (``DistributedDataParallel``).
All draw the same numbers and augment the whole batch, which costs little beside the network: so the batches are those
of a single process, to the pixel.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dsal.data.samples import Samples
from dsal.distributed import ALONE, Team
from dsal.errors import DSALError, InputError
from dsal.progress import Progress
from dsal.training.augment import crop_flip, cutout, trivial
from dsal.training.optimiser import make_optimisers
from dsal.training.recipe import Recipe
from dsal.training.sample import seed_of

Forward = Callable[[Tensor], Any]
"""The network, in the precision of the training."""


@dataclass(frozen=True)
class Batch:
    """A batch of augmented images, the same in all processes.

    Attributes:
        images: uint8, (n, C, H, W).
        labels: int64, (n,).
        mine: the images of this process; not neighbours, so that whatever was done to the first ones is shared evenly.
        progress: fraction of the training that is done, in [0, 1).
        generator: for whatever else is random.
    """

    images: Tensor
    labels: Tensor
    mine: slice
    progress: float
    generator: Generator


Loss = Callable[[Forward, Batch], tuple[Tensor, int]]
"""(network, batch) -> (mean loss over the images ``batch.mine``, how many of them were classified correctly)."""


class Fit:
    """One training by backpropagation, and where it stands.

    Args:
        module: what is trained; parameters that need no gradient stay as they are.
        samples: images to train on.
        loss: what is minimised.
        recipe: how; its losses (``label_smoothing``, ``mixup``, ``rotation_share``) are up to ``loss``.
        seed: of batches and augmentation.
        device: where ``module`` is.
        precision: type of the convolutions; the weights stay float32.
        forward: what ``loss`` calls; ``module`` itself by default.
        team: the processes that train together.
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
    ) -> None:
        if len(samples) < recipe.batch_size:
            raise InputError(f"{len(samples)} training images cannot fill a batch of {recipe.batch_size}")
        if recipe.batch_size < team.size:
            raise InputError(f"a batch of {recipe.batch_size} images is too small for {team.size} processes")
        self.module, self.samples, self.loss, self.recipe = module, samples, loss, recipe
        self.seed, self.device, self.precision, self.team = seed, device, precision, team
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
        """Full batches an epoch; the odd images left over differ from epoch to epoch."""
        return len(self.samples) // self.recipe.batch_size

    @property
    def total(self) -> int:
        """Steps in all."""
        return self.steps_per_epoch * self.recipe.epochs

    @property
    def result(self) -> nn.Module:
        """The module whose weights count: the average where the recipe keeps one."""
        return self.module if self.average is None else self.average

    def steps(self) -> Iterator[Progress]:
        """Train to the end of the recipe, from wherever this training stands, yielding after every step."""
        recipe, steps, size = self.recipe, self.steps_per_epoch, self.recipe.batch_size
        while self.done < self.total:
            epoch, number = divmod(self.done, steps)
            generator = torch.Generator().manual_seed(seed_of(self.seed, epoch))
            order = torch.randperm(len(self.samples), generator=generator).to(self.samples.labels.device)
            if number:
                generator.set_state(self._random)
            else:
                self._loss_sum, self._hits = 0.0, 0
            for images, labels in self.samples.batches(size, order[number * size : steps * size]):
                value = self._step(images.to(self.device), labels.to(self.device), generator)
                self.done += 1
                self._random = generator.get_state()
                if self.done % steps == 0:
                    self._agree()
                yield Progress(self.done, self.total, f"epoch {epoch + 1}/{recipe.epochs}  loss {value:.2f}")

    def means(self) -> tuple[float, float]:
        """Mean loss and accuracy in percent of the epoch so far, on the images as augmented, over all processes."""
        totals = torch.tensor([self._loss_sum / self.team.size, self._hits], dtype=torch.float64)
        loss_sum, hits = self.team.sum_(totals).tolist()
        steps = (self.done - 1) % self.steps_per_epoch + 1
        return loss_sum / steps, 100 * hits / (steps * self.recipe.batch_size)

    def _step(self, images: Tensor, labels: Tensor, generator: Generator) -> float:
        recipe, progress = self.recipe, self.done / self.total
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["initial_lr"] * recipe.lr_factor(progress)
            optimiser.zero_grad()
        self.module.train()
        mine = slice(self.team.rank, None, self.team.size)
        batch = Batch(augmented(images, recipe, generator), labels, mine, progress, generator)
        loss, hits = self.loss(self._run, batch)
        # scaled such that its mean over all processes is that of the batch
        loss = loss * (self.team.size * len(labels[mine]) / len(labels))
        value = loss.item()
        if not math.isfinite(value):
            epoch = self.done // self.steps_per_epoch + 1
            raise DSALError(f"training diverged in epoch {epoch} (loss {value}); lower the learning rate")
        self.scaler.scale(loss).backward()
        for optimiser in self.optimisers:
            self.scaler.step(optimiser)
        self.scaler.update()
        self._update_average()
        self._loss_sum, self._hits = self._loss_sum + value, self._hits + hits
        return value

    def _run(self, x: Tensor) -> Any:
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            return self.forward(x)

    @torch.no_grad()
    def _update_average(self) -> None:
        # torch.optim.swa_utils would begin with the weights after the first step, and average whole numbers too.
        if self.average is None:
            return
        decay = self.recipe.average
        for mean, value in zip(self.average.state_dict().values(), self.module.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(value)

    def _agree(self) -> None:
        """Give all processes the running statistics of rank 0; their weights are equal anyway."""
        if self.team.size > 1:
            for model in (self.module,) if self.average is None else (self.module, self.average):
                for buffer in model.buffers():
                    self.team.broadcast_(buffer)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the rest of the training depends on, besides the weights of the module and :meth:`facts`; copies."""
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        tensors = {
            f"momentum.{names[id(parameter)]}": state["momentum_buffer"]
            for optimiser in self.optimisers
            for parameter, state in optimiser.state.items()
            if state.get("momentum_buffer") is not None
        }
        if self.average is not None:
            tensors |= {f"average.{name}": value for name, value in self.average.state_dict().items()}
        if self.done % self.steps_per_epoch:
            tensors["random"] = self._random
        return {name: value.detach().cpu().numpy().copy() for name, value in tensors.items()}

    def facts(self) -> dict[str, Any]:
        """The rest of it, as JSON holds it."""
        return {"done": self.done, "loss": self._loss_sum, "hits": self._hits, "scaler": self.scaler.state_dict()}

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Go to where a training was when :meth:`arrays` and :meth:`facts` said this of it; its weights are given."""
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
            elif part == "momentum":
                parameter = parameters[rest]
                owners[id(parameter)].state[parameter]["momentum_buffer"] = value.to(self.device)
        if self.average is not None:
            self.average.load_state_dict(averages)
        self.scaler.load_state_dict(facts["scaler"])
        self.done, self._loss_sum, self._hits = facts["done"], facts.get("loss", 0.0), facts.get("hits", 0)


def augmented(images: Tensor, recipe: Recipe, generator: Generator) -> Tensor:
    """Uint8 images (n, c, h, w) as the recipe changes them, labels untouched."""
    images = crop_flip(images, generator, mirror=recipe.mirror)
    if recipe.trivial:
        images = trivial(images, recipe.trivial, generator)
    return cutout(images, recipe.cutout, generator) if recipe.cutout else images
