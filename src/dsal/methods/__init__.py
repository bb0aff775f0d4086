"""Class-incremental methods: one file and one line each."""

from dsal.methods.acil import ACIL
from dsal.methods.contract import Method, State
from dsal.methods.ds_al import DSAL
from dsal.registry import Registry

METHODS: Registry[type[Method]] = Registry("method")
METHODS.register("ds-al")(DSAL)
METHODS.register("acil")(ACIL)

__all__ = ["METHODS", "Method", "State"]
