"""What the machine has, read from the files where it says so."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dsal.base import memory
from dsal.errors import MemoryNeededError

CPU = torch.device("cpu")


def test_available_memory_is_plausible() -> None:
    available = memory.available_bytes(CPU)
    assert available is not None
    assert 2**20 < available < 2**60


def test_what_fits_passes_and_what_does_not_is_refused() -> None:
    memory.require(1, CPU, "nothing much")
    with pytest.raises(MemoryNeededError, match=r"everything needs 1152921504\.61 GB and .* are available on cpu"):
        memory.require(2**60, CPU, "everything")


@pytest.mark.parametrize(("limit", "expected"), [("8000", 8000 - (7000 - 4000)), ("max", None)])
def test_a_container_gives_back_its_file_cache(tmp_path: Path, limit: str, expected: int | None) -> None:
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text("7000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 4000\n")
    assert memory._cgroup_bytes(str(tmp_path), "memory.max", "memory.current", "inactive_file") == expected
    assert memory._cgroup_bytes(str(tmp_path / "none"), "memory.max", "memory.current", "inactive_file") is None


def test_a_limit_on_addresses_counts() -> None:
    """In a process of its own: the limit could not be raised again."""
    program = """
import resource, torch
from dsal.base import memory
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
available = memory.available_bytes(torch.device("cpu"))
assert 2**27 < available <= 2**28, available
"""
    subprocess.run([sys.executable, "-c", program], check=True)
