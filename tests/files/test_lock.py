"""One writer at a time: among threads, among processes, and after a process that was killed."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dsal import DSALError, InputError, ModelBusyError
from dsal.files import lock
from dsal.files.lock import model_lock

HOLD = """
import sys, time
from dsal.files.lock import model_lock
with model_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_threads_take_turns(tmp_path: Path) -> None:
    """A counter in a file loses nothing, though each turn reads, waits and writes."""
    counter = tmp_path / "m.dsal"
    counter.write_text("0")

    def work() -> None:
        for _ in range(5):
            with model_lock(counter, wait=30):
                value = int(counter.read_text())
                time.sleep(0.002)
                counter.write_text(str(value + 1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "20"
    assert [path.name for path in tmp_path.iterdir()] == ["m.dsal"]


def test_a_second_writer_is_refused_and_a_killed_one_blocks_nobody(tmp_path: Path) -> None:
    model = tmp_path / "m.dsal"
    (tmp_path / "link.dsal").symlink_to(model)
    with subprocess.Popen([sys.executable, "-c", HOLD, model], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for path in (model, tmp_path / "link.dsal"):  # a link names the same model
            with pytest.raises(ModelBusyError, match="being written by another process"), model_lock(path):
                pytest.fail("two writers")
        began = time.monotonic()
        with pytest.raises(DSALError, match=r"after 0\.2 s"), model_lock(model, wait=0.2):
            pytest.fail("two writers")
        assert 0.2 <= time.monotonic() - began < 5
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with model_lock(model):
            pass


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"), model_lock(tmp_path / "no" / "m.dsal"):
        pytest.fail("locked")


def test_a_lock_file_that_was_removed_before_it_was_locked_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous writer removes the file between our opening and our locking it, and a third makes a new one."""
    model, attempts = tmp_path / "m.dsal", []
    really = lock._lock

    def late(descriptor: int) -> bool:
        attempts.append(descriptor)
        if len(attempts) <= 2:
            (tmp_path / ".m.dsal.lock").unlink()
        if len(attempts) == 2:
            (tmp_path / ".m.dsal.lock").touch()
        return really(descriptor)

    monkeypatch.setattr(lock, "_lock", late)
    with model_lock(model, wait=5):
        assert len(attempts) == 3
        with pytest.raises(ModelBusyError), model_lock(model):
            pytest.fail("two writers")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs O_NOFOLLOW")
def test_a_link_in_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    """Somebody who may write to the folder cannot make us create or lock a file elsewhere."""
    (tmp_path / ".m.dsal.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"cannot write m\.dsal"), model_lock(tmp_path / "m.dsal"):
        pytest.fail("followed a link")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="counts descriptors in /dev/fd")
def test_no_descriptor_is_left_open_and_without_wait_it_is_refused_at_once(tmp_path: Path) -> None:
    """A descriptor that stays open would hold the lock of a file that nobody can see any more."""
    before = len(list(Path("/dev/fd").iterdir()))
    with model_lock(tmp_path / "m.dsal"):
        assert (tmp_path / ".m.dsal.lock").stat().st_mode & 0o600 == 0o600
        began = time.monotonic()
        with pytest.raises(ModelBusyError), model_lock(tmp_path / "m.dsal"):
            pytest.fail("two writers")
        assert time.monotonic() - began < 0.9
    assert len(list(Path("/dev/fd").iterdir())) == before
