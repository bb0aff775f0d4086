"""Dual-stream analytic learning: new classes in closed form, nothing forgotten, no data kept.

Names are imported when they are first used, so ``import dsal`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsal.classifier import DSALClassifier
    from dsal.errors import (
        DSALError,
        FileFormatError,
        InputError,
        LeakError,
        MemoryNeededError,
        MissingDataError,
        ModelBusyError,
        UnknownNameError,
    )
    from dsal.head import AnalyticHead
    from dsal.learner import Learner
    from dsal.ridge import Ridge

__version__ = "0.1.0"

__all__ = [
    "AnalyticHead",
    "DSALClassifier",
    "DSALError",
    "FileFormatError",
    "InputError",
    "LeakError",
    "Learner",
    "MemoryNeededError",
    "MissingDataError",
    "ModelBusyError",
    "Ridge",
    "UnknownNameError",
]

_MODULES = {
    "AnalyticHead": "dsal.head",
    "DSALClassifier": "dsal.classifier",
    "Learner": "dsal.learner",
    "Ridge": "dsal.ridge",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dsal' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "dsal.errors")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
