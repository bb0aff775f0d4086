"""Mnemonics: exemplars whose pixels are learned (Liu et al., CVPR 2020), on LUCIR."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import SGD

from dsal.data.samples import ImageData, Samples, joined
from dsal.methods.contract import Phase
from dsal.methods.network.kit.exemplars import Exemplars
from dsal.methods.network.kit.replay import Herded
from dsal.methods.network.lucir import LUCIR
from dsal.training.fit import augmented
from dsal.training.sample import seed_of


class LearnedPixels(Herded["Mnemonics"]):
    """Exemplars in float32; those of new classes are optimised after they were chosen."""

    def room(self) -> Exemplars:
        return Exemplars(self.method.exemplars_per_class, self.method.exemplar_bytes, learned=True)

    def kept(self, phase: Phase) -> None:
        data, method = self.exemplars.data, self.method
        if data is None or not method.pixel_epochs or not method.pixel_lr:
            return
        old = data.take(torch.nonzero(data.labels < method.classes_seen).flatten())
        samples = joined([phase.samples, old]) if len(old) else phase.samples
        self._learn_pixels(data, samples, phase.index)

    def _learn_pixels(self, kept: ImageData, samples: Samples, phase: int) -> None:
        """Optimise the exemplars of new classes."""
        method, device = self.method, self.method.torch_device
        network = self.method.network.eval().requires_grad_(False)
        known = method.classes_seen
        new = kept.labels >= known
        images, targets = kept.images[new].to(device), (kept.labels[new] - known).to(device)
        pixels = network.normalise(images).requires_grad_(True)
        optimiser = SGD([pixels], method.pixel_lr, 0.9, weight_decay=5e-4)
        old = kept.take(torch.nonzero(~new).flatten())
        old_means = class_means(self.method.features_of(old), old.labels.to(device)) if len(old) else None
        recipe, seed = method.recipe(method.pixel_epochs, len(samples)), seed_of(method.seed, 700_000 + phase)
        for epoch in range(method.pixel_epochs):
            generator = torch.Generator().manual_seed(seed_of(seed, epoch))
            order = torch.randperm(len(samples), generator=generator).to(samples.labels.device)
            for batch, labels in samples.batches(recipe.batch_size, order):
                with torch.no_grad():
                    x = network.normalise(augmented(batch.to(device), recipe, generator))
                    features = network.features(x)[0]
                means = class_means(network.features(pixels)[0], targets)
                loss = nearest_mean_loss(
                    features, labels.to(device), means if old_means is None else torch.cat([old_means, means])
                )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        network.requires_grad_(True)
        values = (pixels.detach() * network.pixel_std + network.pixel_mean) * 255
        changed = kept.images.clone()
        changed[new] = values.clamp(0, 255).cpu()
        method.exemplars.store(changed, kept.labels)


@dataclass(kw_only=True, eq=False)
class Mnemonics(LUCIR):
    """LUCIR with new exemplars optimised so that their means classify the images of the phase.

    There are two alternating levels. The phase trains the network with the exemplars fixed. Then, with the network
    fixed, SGD on the pixels of the exemplars of new classes, which start as the herded images, minimises
    CE(cos(f(x), m), y) over augmented images of the phase and old exemplars, where m_c is the mean feature of the
    exemplars of a class. It stores the network and the exemplars, as float32: at the published rate a pixel moves by a
    thousandth of a byte's step, which rounding to bytes would undo.

    This follows the published code. It replaces the paper's inner level, a model trained on the exemplars alone, by
    their means, and does not change old exemplars again.

    Args:
        pixel_epochs: passes over the images of a phase.
        pixel_lr: learning rate of the normalised pixels.
    """

    name = "mnemonics"
    title = "Mnemonics"

    pixel_epochs: int = 1
    pixel_lr: float = 1e-5

    policy = LearnedPixels


def class_means(features: Tensor, labels: Tensor) -> Tensor:
    """Return the mean feature (classes, d) of each class; labels (n,) of features (n, d) start at 0, without gaps."""
    return torch.stack([features[labels == label].mean(dim=0) for label in range(int(labels.max()) + 1)])


def nearest_mean_loss(features: Tensor, labels: Tensor, means: Tensor) -> Tensor:
    """Return -log softmax(cos(f, m))_y (Mnemonics), for features (n, d), labels (n,) and class means (classes, d)."""
    cosines = functional.linear(functional.normalize(features), functional.normalize(means))
    return functional.cross_entropy(cosines, labels)
