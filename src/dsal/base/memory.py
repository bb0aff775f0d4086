"""Check the available memory before a large allocation."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from dsal.errors import MemoryNeededError

_CGROUPS = (  # folder, files with the limit and the usage, entry of the reclaimable file cache: cgroup v2, v1
    ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def require(needed: int, device: torch.device, purpose: str) -> None:
    """Raise :class:`MemoryNeededError` if ``needed`` bytes do not fit on ``device``.

    If the available memory is unknown, assume that they fit.
    """
    available = available_bytes(device)
    if available is not None and needed > available:
        raise MemoryNeededError(
            f"{purpose} needs {needed / 1e9:.2f} GB and {available / 1e9:.2f} GB are available on {device}. "
            "Lower expansion_size (memory grows with its square), or use a larger machine."
        )


def available_bytes(device: torch.device) -> int | None:
    """Return the bytes that can still be allocated on ``device``, within the limits of a container; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    limits = (_system_bytes(), _address_bytes(), *(_cgroup_bytes(*names) for names in _CGROUPS))
    return min((limit for limit in limits if limit is not None), default=None)


def _system_bytes() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _address_bytes() -> int | None:
    """Return the bytes left under a limit on the address space (``ulimit -v``); None without one."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return max(limit - pages * resource.getpagesize(), 0)
    except (ImportError, OSError, ValueError):  # not Unix, or not Linux
        return None


def _cgroup_bytes(folder: str, limit: str, used: str, cache: str) -> int | None:
    try:
        statistics = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
        in_use = int(Path(folder, used).read_text()) - int(statistics[cache])
        return int(Path(folder, limit).read_text()) - in_use
    except (OSError, ValueError, KeyError):  # no such file, or "max": no limit
        return None
