"""Dual-stream analytic learning: new classes in closed form, nothing forgotten, no data kept.

Names are imported on first use, so ``import dsal`` is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsal.classifier import DSALClassifier
    from dsal.data.features import FeatureSet, read_features, save_features
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
    from dsal.head import AnalyticHead
    from dsal.images import ImageFeatures, ImageModel
    from dsal.learner import Learner
    from dsal.methods import METHODS
    from dsal.methods.checks import check_method
    from dsal.ridge import Ridge

__version__ = "0.2.0"

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
    "AnalyticHead": "dsal.head",
    "DSALClassifier": "dsal.classifier",
    "FeatureSet": "dsal.data.features",
    "ImageFeatures": "dsal.images",
    "ImageModel": "dsal.images",
    "Learner": "dsal.learner",
    "METHODS": "dsal.methods",
    "Ridge": "dsal.ridge",
    "check_method": "dsal.methods.checks",
    "read_features": "dsal.data.features",
    "save_features": "dsal.data.features",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dsal' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "dsal.errors")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
