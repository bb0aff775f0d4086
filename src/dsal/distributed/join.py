"""Join the other processes; only this module deals with devices, communication backends and addresses.

``torchrun`` starts the processes and tells each through environment variables which one it is (``RANK`` of
``WORLD_SIZE``, ``LOCAL_RANK`` on its machine) and where to reach rank 0.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module

import torch
from torch import distributed

from dsal.distributed.team import ALONE, Team
from dsal.distributed.watch import Watch
from dsal.errors import InputError

_PATIENCE = timedelta(minutes=30)  # timeout for a live rank that does not answer; a dead one is noticed at once


@contextmanager
def joined() -> Iterator[Team]:
    """Join all processes that ``torchrun`` has started; yield :data:`ALONE` with one process or without ``torchrun``.

    If a rank dies or fails in the block, all others end within seconds, with exit code 1 and an error that names it.

    Raises:
        InputError: there are more processes on this machine than GPUs.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    if torch.cuda.is_available():
        local, devices = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= devices:
            raise InputError(f"this machine has {devices} GPUs: start at most that many processes (--nproc-per-node)")
        torch.cuda.set_device(local)  # "cuda" means this one from now on
    # Default arguments in this module keep the group that exists when DistributedDataParallel first imports it, and so
    # Gloo's threads, which may then abort the process at its exit. Imported now, they keep none.
    import_module("torch.distributed.nn.functional")
    # NCCL transfers GPU tensors, Gloo the rest.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=_PATIENCE)
    team = Team(int(os.environ["RANK"]), size)
    watch = Watch(team, os.environ["MASTER_ADDR"])
    try:
        yield team
        team.wait()
    except BaseException as error:
        if watch.tell_failure(error):
            raise SystemExit(1) from error  # rank 0 stops for the same reason, and reports it
        raise
    watch.end()
    gc.collect()  # models that are no longer used still hold the group
    distributed.destroy_process_group()
