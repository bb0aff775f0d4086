"""Join the other processes, and notice when one of them dies; only this module deals with devices and addresses.

``torchrun`` starts the processes and tells each through environment variables which one it is (``RANK`` of
``WORLD_SIZE``, ``LOCAL_RANK`` on its machine) and where to reach rank 0.

A rank that waits for a dead one would wait for a long time, and then report a socket error. So every rank keeps a
connection to rank 0 open, on which nothing is sent while all is well. When a process dies, for whatever reason, its
operating system closes the connection; when a whole machine fails, TCP keep-alive probes detect it within half a
minute. Rank 0 then tells all others, and all ranks stop. Threads listen, so a rank may meanwhile wait for the dead one.

A heartbeat would not work: a call into native code may hold the GIL for long, and a heartbeat thread would
miss beats while all is well. For the same reason a rank in such a call learns of a failure only when the call returns.
"""

from __future__ import annotations

import gc
import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from threading import Event, Lock, Thread

import torch
from torch import distributed

from dsal.distributed.team import ALONE, Team
from dsal.errors import DSALError, InputError

_PATIENCE = timedelta(minutes=30)  # timeout for a live rank that does not answer; a dead one is noticed at once
_GRACE = 5.0  # seconds to wait for news that another rank caused a failure
_ECHO = 1.0  # seconds within which ranks that fail for the same reason do so
_OWN_REASONS = (DSALError, OSError, KeyboardInterrupt)  # torch raises RuntimeError when another rank is gone
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}  # seconds, seconds, probes
_CONNECTING = 60.0  # timeout in seconds
_DONE = "done\n"


@contextmanager
def join_processes() -> Iterator[Team]:
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


class Watch:
    """The connections of one rank: to rank 0, or on rank 0 to all others. Each carries at most one line.

    Args:
        team: all ranks; each must create a watch.
        address: of rank 0, for the others.
    """

    def __init__(self, team: Team, address: str) -> None:
        self._team, self._over = team, False
        self._why: str | None = None  # why this rank itself stops
        self._failing, self._shared, self._stopping = Event(), Event(), Lock()
        self._names = team.gathered(f"rank {team.rank} (process {os.getpid()} on {socket.gethostname()})")
        self._links = self._connect(address)
        for rank, link in self._links.items():
            _keep_alive(link)
            Thread(target=self._listen, args=(rank, link), daemon=True, name=f"dsal-watch-{rank}").start()

    def tell_failure(self, error: BaseException) -> bool:
        """Tell the others why this rank stops; return True if rank 0 stops for the same reason and reports it.

        If the reason is that another rank was lost, this process exits here.
        """
        self._why = str(error) or type(error).__name__
        self._failing.set()
        if not (self._team.leads and isinstance(error, _OWN_REASONS)) and self._shared.wait(_GRACE):
            return True
        self._over = True
        self._tell_all(json.dumps([self._team.rank, self._why]) + "\n")
        return False

    def end(self) -> None:
        """Tell the others that all went well; ignore connections that close from now on."""
        self._over = True
        self._tell_all(_DONE)

    def _connect(self, address: str) -> dict[int, socket.socket]:
        """Return the connections by rank; rank 0 waits for all others, which identify themselves by a token."""
        server = socket.create_server(("", 0), backlog=self._team.size) if self._team.leads else None
        number = server.getsockname()[1] if server else 0
        port, token = self._team.broadcast_result(lambda: (number, secrets.token_hex()))
        if server is None:
            link = socket.create_connection((address, port), timeout=_CONNECTING)
            link.sendall(f"{token} {self._team.rank}\n".encode())
            return {0: link}
        links: dict[int, socket.socket] = {}
        with server:
            server.settimeout(_CONNECTING)
            while len(links) < self._team.size - 1:
                link, _ = server.accept()
                link.settimeout(_CONNECTING)
                received, _, rank = link.makefile().readline().partition(" ")
                if secrets.compare_digest(received, token):
                    links[int(rank)] = link
        return links

    def _listen(self, rank: int, link: socket.socket) -> None:
        try:
            line = link.makefile().readline()
        except OSError:  # reset, or no answer to the probes
            line = ""
        if not self._over and line != _DONE:
            self._stop(*(json.loads(line) if line else (rank, "it has died")))

    def _stop(self, rank: int, why: str) -> None:
        """Exit this process, because another rank is lost."""
        with self._stopping:  # held until exit: only the first lost rank is reported
            if self._failing.wait(_ECHO) and why == self._why:
                self._shared.set()
                return
            if self._team.leads:
                self._tell_all(json.dumps([rank, why]) + "\n")
            sys.stderr.write(f"error: {self._names[rank]} stopped: {why}. All other ranks stop too.\n")
            sys.stderr.flush()
            os._exit(1)  # the main thread may be waiting in a library for something that will never come

    def _tell_all(self, line: str) -> None:
        for link in self._links.values():
            with suppress(OSError):  # it is already gone
                link.sendall(line.encode())


def _keep_alive(link: socket.socket) -> None:
    link.settimeout(None)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
