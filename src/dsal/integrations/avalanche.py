"""Avalanche: DS-AL as a strategy.

An experience is a phase. The model given to the strategy is a frozen feature extractor.
"""

from __future__ import annotations

from typing import Any

import torch

from dsal.classifier import DSALClassifier
from dsal.integrations.needs import needs

_Base: Any = needs("avalanche.training.templates", "avalanche").SupervisedTemplate


class DSAL(_Base):  # type: ignore[misc]
    """A supervised strategy without gradients: features of an experience are collected, then learned at once.

    Args:
        model: images to features (n, d).
        classifier: not fitted; its options are those of DS-AL.
        classes: number of outputs, for Avalanche's metrics; labels are integers below it.
        options: of Avalanche's ``SupervisedTemplate``, such as ``train_mb_size``, ``evaluator`` or ``device``.
    """

    def __init__(
        self, *, model: torch.nn.Module, classifier: DSALClassifier | None = None, classes: int, **options: Any
    ) -> None:
        self.classifier, self.classes = classifier or DSALClassifier(), classes
        criterion = options.pop("criterion", torch.nn.CrossEntropyLoss())
        options["train_epochs"] = 1  # more would count every row twice
        super().__init__(model=model.eval(), optimizer=None, criterion=criterion, **options)

    def make_optimizer(self, **kwargs: Any) -> None:
        """Nothing to optimise."""

    def forward(self) -> torch.Tensor:
        """Return the logits of the mini-batch (n x classes); -100 for classes that were never seen."""
        return self._logits(self._features())

    @torch.no_grad()
    def training_epoch(self, **kwargs: Any) -> None:
        """Learn one experience as one phase."""
        rows, labels = [], []
        for batch in self.dataloader:
            self.mbatch = batch
            self._unpack_minibatch()
            self._before_training_iteration(**kwargs)
            self.loss = self._make_empty_loss()
            self._before_forward(**kwargs)
            features = self._features()
            self.mb_output = self._logits(features)  # of what was known before
            self._after_forward(**kwargs)
            self.loss += self.criterion()
            rows.append(features.cpu())
            labels.append(self.mb_y.cpu())
            self._after_training_iteration(**kwargs)
        self.classifier.partial_fit(torch.cat(rows).numpy(), torch.cat(labels).numpy())

    def _features(self) -> torch.Tensor:
        self.model.eval()
        with torch.no_grad():
            return self.model(self.mb_x).flatten(1)  # type: ignore[no-any-return]

    def _logits(self, features: torch.Tensor) -> torch.Tensor:
        out = torch.full((len(features), self.classes), -100.0)
        if hasattr(self.classifier, "_learner"):
            logits = self.classifier.logits(features.cpu().numpy())
            out[:, torch.from_numpy(self.classifier.classes_)] = torch.from_numpy(logits).float()
        return out.to(self.device)
