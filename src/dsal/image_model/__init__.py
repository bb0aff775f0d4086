"""Models for your own images: a backbone, a classifier and novelty detection in one file.

Names are imported on first use, because most commands need only some of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsal.image_model.image_features import ImageFeatures
    from dsal.image_model.model import ImageModel
    from dsal.image_model.outcomes import Evaluation, Lesson, Prediction, PredictionList

__all__ = ["Evaluation", "ImageFeatures", "ImageModel", "Lesson", "Prediction", "PredictionList"]

_MODULES = {"ImageFeatures": "dsal.image_model.image_features", "ImageModel": "dsal.image_model.model"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dsal.image_model' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "dsal.image_model.outcomes")), name)
