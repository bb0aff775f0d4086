"""Dual-stream analytic learning: new classes in closed form, no data kept.

Names are imported on first use, so ``import dsal`` is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dsal.base import __version__ as __version__

if TYPE_CHECKING:
    from dsal.analytic.head import AnalyticHead
    from dsal.analytic.learner import Learner
    from dsal.analytic.ridge import Ridge
    from dsal.classifier import DSALClassifier
    from dsal.data.features.feature_set import FeatureSet, read_features, save_features
    from dsal.errors import (
        DSALError,
        FileFormatError,
        InputError,
        LeakError,
        MemoryNeededError,
        MissingDataError,
        ModelBusyError,
        PluginError,
        UnknownNameError,
    )
    from dsal.image_model import ImageFeatures, ImageModel
    from dsal.methods import METHODS
    from dsal.methods.checks import check_method

__all__ = [
    "METHODS",
    "AnalyticHead",
    "DSALClassifier",
    "DSALError",
    "FeatureSet",
    "FileFormatError",
    "ImageFeatures",
    "ImageModel",
    "InputError",
    "LeakError",
    "Learner",
    "MemoryNeededError",
    "MissingDataError",
    "ModelBusyError",
    "PluginError",
    "Ridge",
    "UnknownNameError",
    "check_method",
    "read_features",
    "save_features",
]

_MODULES = {
    "AnalyticHead": "dsal.analytic.head",
    "DSALClassifier": "dsal.classifier",
    "FeatureSet": "dsal.data.features.feature_set",
    "ImageFeatures": "dsal.image_model",
    "ImageModel": "dsal.image_model",
    "Learner": "dsal.analytic.learner",
    "METHODS": "dsal.methods",
    "Ridge": "dsal.analytic.ridge",
    "check_method": "dsal.methods.checks",
    "read_features": "dsal.data.features.feature_set",
    "save_features": "dsal.data.features.feature_set",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dsal' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "dsal.errors")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
