"""The scikit-learn interface of the package. Imported on first use: what else is here needs neither it nor PyTorch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsal.classifier.estimator import DSALClassifier

__all__ = ["DSALClassifier"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dsal.classifier' has no attribute {name!r}")
    from dsal.classifier.estimator import DSALClassifier

    return DSALClassifier
