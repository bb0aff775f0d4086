"""river: the classifier as a river estimator."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsal.classifier import DSALClassifier
from dsal.errors import InputError
from dsal.integrations.needs import needs

_Base: Any = needs("river.base", "river").MiniBatchClassifier


class RiverClassifier(_Base):  # type: ignore[misc]
    """DS-AL on dicts of numbers. One call is one phase; the main stream does not depend on how rows are grouped.

    Args:
        expansion_size: d_B; a row costs 2 d_B^2 flops.
        gamma: ridge penalty.
        compensation: C; None, the default, learns the main stream alone, which suits single rows best.
        seed: of the random expansion.
    """

    def __init__(
        self, expansion_size: int = 256, gamma: float = 0.1, compensation: float | None = None, seed: int = 0
    ) -> None:
        self.expansion_size = expansion_size
        self.gamma = gamma
        self.compensation = compensation
        self.seed = seed
        self._features: list[Any] = []
        self._model = DSALClassifier(expansion_size, gamma, compensation=compensation, random_state=seed)

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def model(self) -> DSALClassifier:
        """The classifier: merge it, subtract from it, save it."""
        return self._model

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        self._model.partial_fit(self._row(x), [y])

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        if not self._features:
            return {}
        chances = self._model.predict_proba(self._row(x))[0]
        return dict(zip(self._model.classes_.tolist(), chances.tolist(), strict=True))

    def learn_many(self, X: Any, y: Any) -> None:
        if len(X):
            self._model.partial_fit(self._rows(X), y.to_numpy())

    def predict_proba_many(self, X: Any) -> Any:
        pandas = needs("pandas", "river")
        if not self._features:
            return pandas.DataFrame(index=X.index)
        chances = self._model.predict_proba(self._rows(X))
        return pandas.DataFrame(chances, index=X.index, columns=self._model.classes_.tolist())

    def _row(self, x: dict[Any, Any]) -> Any:
        self._agree(x)
        return np.array([[float(x.get(name, 0.0)) for name in self._features]])

    def _rows(self, X: Any) -> Any:
        self._agree(X.columns)
        return X.reindex(columns=self._features, fill_value=0.0).to_numpy(dtype=np.float64)

    def _agree(self, names: Any) -> None:
        """Fix the features at the first row; later a missing one is 0, and an unknown one an error."""
        self._features = self._features or list(names)
        unknown = [name for name in names if name not in self._features]
        if unknown:
            raise InputError(f"the first row had no features {unknown[:5]}: give every feature there, 0 if need be")
