"""Class-incremental methods: one file each, in ``closed_form`` or ``network``, found by its line ``name = "..."``."""

from dsal.base.registry import Registry
from dsal.methods.closed_form.kit.array_method import ArrayMethod, keeps
from dsal.methods.closed_form.kit.feature_method import FeatureMethod
from dsal.methods.contract import Method, Phase, State
from dsal.methods.finding import find_methods

METHODS: Registry[type[Method]] = Registry("method", group="dsal.methods", find=find_methods)

__all__ = ["METHODS", "ArrayMethod", "FeatureMethod", "Method", "Phase", "State", "keeps"]
