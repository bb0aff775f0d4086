"""The scikit-learn interface of the package."""

from dsal.classifier.estimator import DSALClassifier

__all__ = ["DSALClassifier"]
