"""What two runs of the same experiment have in common."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def comparable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without what differs between any two runs: times, peak memory, and time of start."""
    same = copy.deepcopy(dict(document))
    for phase in same["phases"]:
        del phase["seconds"], phase["seconds_evaluate"]
    del same["peak_memory_bytes"], same["provenance"]["started"]
    return same
