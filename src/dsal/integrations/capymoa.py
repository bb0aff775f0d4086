"""CapyMOA: the classifier as a batch classifier, for its evaluation loops. Labels are the schema's numbers."""

from __future__ import annotations

from typing import Any

import torch

from dsal.classifier import DSALClassifier
from dsal.integrations.needs import needs

_Base: Any = needs("capymoa.base", "capymoa").BatchClassifier


class DSAL(_Base):  # type: ignore[misc]
    """DS-AL on a stream. One batch is one phase; the main stream does not depend on how rows are grouped.

    Args:
        schema: of the stream.
        classifier: not fitted; by default the main stream alone, which suits small batches best.
        pre_processor: images to features (n, d), such as a frozen network.
    """

    def __init__(
        self, schema: Any, classifier: DSALClassifier | None = None, pre_processor: torch.nn.Module | None = None
    ) -> None:
        super().__init__(schema)
        self.classifier = classifier or DSALClassifier(256, compensation=None)
        self.pre_processor = (pre_processor or torch.nn.Identity()).eval()

    def batch_train(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.classifier.partial_fit(self._features(x), y.numpy())

    def batch_predict_proba(self, x: torch.Tensor) -> torch.Tensor:
        """Return the probability of every class of the schema (n x classes): 0 for those that were never seen."""
        chances = torch.zeros(len(x), self.schema.get_num_classes())
        if hasattr(self.classifier, "_learner"):
            known = torch.from_numpy(self.classifier.classes_)
            chances[:, known] = torch.from_numpy(self.classifier.predict_proba(self._features(x))).float()
        return chances

    @torch.no_grad()
    def _features(self, x: torch.Tensor) -> Any:
        return self.pre_processor(x).flatten(1).numpy()
