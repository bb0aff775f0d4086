"""A file is on disk before it takes the place of the old one, and its name is on disk before anybody is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsal.files.atomic import atomic_write, flush_to_disk, write_text


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """The system's flushes and renames while they happen: what was done, the file's number, its size at that moment."""
    done: list[tuple[str, int, int]] = []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor: int) -> None:
        status = os.fstat(descriptor)
        done.append(("flush", status.st_ino, status.st_size))
        fsync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        done.append(("rename", source.stat().st_ino, source.stat().st_size))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    return done


def test_flushed_renamed_and_the_folder_flushed_in_this_order(
    tmp_path: Path, calls: list[tuple[str, int, int]]
) -> None:
    target = tmp_path / "file"
    for text in ("a first text", "and another"):
        calls.clear()
        write_text(target, text)
        number = target.stat().st_ino
        assert calls[:2] == [("flush", number, len(text)), ("rename", number, len(text))]  # whole, then in its place
        assert [call[:2] for call in calls[2:]] == [("flush", tmp_path.stat().st_ino)]


def test_a_link_in_another_folder_flushes_the_folder_of_its_target(
    tmp_path: Path, calls: list[tuple[str, int, int]]
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here" / "file")
    write_text(tmp_path / "link", "text")
    assert calls[-1][:2] == ("flush", (tmp_path / "here").stat().st_ino)


def test_what_fails_is_neither_flushed_nor_renamed(tmp_path: Path, calls: list[tuple[str, int, int]]) -> None:
    def half() -> None:
        with atomic_write(tmp_path / "file") as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert calls == []
    assert list(tmp_path.iterdir()) == []


def test_no_descriptor_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("text")
    before = len(list(Path("/dev/fd").iterdir()))

    def failing(descriptor: int) -> None:
        raise OSError("no space left on device")

    flush_to_disk(tmp_path / "file")
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="no space"):
        flush_to_disk(tmp_path / "file")
    assert len(list(Path("/dev/fd").iterdir())) == before
