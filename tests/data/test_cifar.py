"""CIFAR in its official layout: small files made in it, and the real one where it is at hand."""

import dataclasses
import hashlib
import os
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from dsal.data import data_root, load_dataset
from dsal.data.dataset import Archive, download_archive
from dsal.data.sets.cifar import CIFAR10, CIFAR100, Layout, _load
from dsal.errors import FileFormatError, MissingDataError, UnknownNameError

from .cifar_files import DUMPS, Dump, dump_as_python3, write_archive, write_folder

LAYOUTS = pytest.mark.parametrize("layout", [CIFAR100, CIFAR10], ids=lambda layout: layout.name)


@LAYOUTS
@pytest.mark.parametrize("dump", DUMPS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_official_and_rebuilt_form_is_read(layout: Layout, dump: Dump, packed: bool, tmp_path: Path) -> None:
    files = (
        write_archive(tmp_path / layout.archive.filename, layout, dump)
        if packed
        else write_folder(tmp_path, layout, dump)
    )
    data = load_dataset(layout.name, tmp_path)
    assert data.name == layout.name
    assert data.class_names == tuple(f"class {i}" for i in range(layout.classes))
    for part, members in ((data.train, layout.train), (data.test, layout.test)):
        pixels = np.concatenate([files[m]["data"] for m in members])
        assert part.images.dtype == torch.uint8
        assert part.images.shape == (len(pixels), 3, 32, 32)
        # Each row is the red plane, then green, then blue, each row by row.
        assert part.images[5, 1, 2, 3].item() == pixels[5, 1024 + 2 * 32 + 3]
        assert np.array_equal(part.images.numpy().reshape(len(pixels), -1), pixels)
        assert part.labels.tolist() == [n for m in members for n in files[m][layout.labels_key]]


def test_the_fingerprint_is_of_the_content_not_of_the_files(tmp_path: Path) -> None:
    write_folder(tmp_path / "a", CIFAR100)
    (tmp_path / "b").mkdir()
    write_archive(tmp_path / "b" / "cifar-100-python.tar.gz", CIFAR100, dump_as_python3)
    first, same = (load_dataset("cifar100", tmp_path / name).fingerprint for name in "ab")
    assert first == same
    files = write_folder(tmp_path / "c", CIFAR100)
    files["test"]["fine_labels"][3] += 1
    (tmp_path / "c" / "cifar-100-python" / "test").write_bytes(dump_as_python3(files["test"]))
    assert load_dataset("cifar100", tmp_path / "c").fingerprint != first


@LAYOUTS
def test_missing_data_says_what_to_put_where(layout: Layout, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        load_dataset(layout.name, tmp_path)
    assert str(tmp_path / layout.archive.filename) in str(caught.value)
    assert str(tmp_path / layout.folder) in str(caught.value)
    assert layout.archive.url in str(caught.value)
    (tmp_path / layout.folder).mkdir()
    with pytest.raises(MissingDataError, match=layout.meta):
        load_dataset(layout.name, tmp_path)


def test_the_data_root_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSAL_DATA", str(tmp_path))
    write_folder(tmp_path, CIFAR100)
    assert len(load_dataset("cifar100").train) == 7
    monkeypatch.delenv("DSAL_DATA")
    monkeypatch.setenv("HOME", "/home/someone")
    assert data_root() == Path("/home/someone/.cache/dsal")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cifar100'"):
        load_dataset("cifar-100")


@pytest.mark.parametrize(
    "change",
    [
        {"data": [1, 2, 3]},
        {"data": np.zeros((7, 3071), dtype=np.uint8)},
        {"fine_labels": [0] * 6},
        {"fine_labels": [0] * 6 + [100]},
        {"fine_labels": [0] * 6 + [-1]},
        {"fine_labels": [0] * 6 + [0.5]},
        {"fine_labels": None},
    ],
)
def test_files_that_are_not_cifar_are_refused(change: dict[str, object], tmp_path: Path) -> None:
    files = write_folder(tmp_path, CIFAR100)
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps({**files["train"], **change}, protocol=4))
    with pytest.raises(FileFormatError, match="train"):
        load_dataset("cifar100", tmp_path)


def test_torn_and_foreign_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / CIFAR100.archive.filename
    write_archive(path, CIFAR100)
    raw = path.read_bytes()
    damaged = raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 0xFF]) + raw[len(raw) // 2 + 1 :]
    for content in (raw[:-5000], raw[: len(raw) // 3], b"", b"not an archive", damaged):
        path.write_bytes(content)
        with pytest.raises(FileFormatError):
            load_dataset("cifar100", tmp_path)
    write_archive(path, CIFAR10)
    with pytest.raises(FileFormatError, match="cifar-100-python/meta"):
        load_dataset("cifar100", tmp_path)


def test_a_download_is_checked_kept_and_read(tmp_path: Path) -> None:
    source = tmp_path / CIFAR100.archive.filename
    write_archive(source, CIFAR100)
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    layout = dataclasses.replace(CIFAR100, archive=Archive(source.as_uri(), sha256))
    root, calls = tmp_path / "new" / "root", []
    data = _load(layout, root, True, lambda done, total: calls.append((done, total)))
    assert len(data.train) == 7
    assert calls[-1] == (source.stat().st_size, source.stat().st_size)
    source.unlink()
    assert _load(layout, root, True, None).fingerprint == data.fingerprint, "a second time it is there already"


def test_a_download_with_another_checksum_is_not_kept(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"something else")
    target = tmp_path / "root" / "target"
    with pytest.raises(FileFormatError, match="sha256"):
        download_archive(Archive(source.as_uri(), "0" * 64), target)
    assert list(target.parent.iterdir()) == []


class _HangsUp(BaseHTTPRequestHandler):
    """Promises a hundred bytes, sends three."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"abc")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server_that_hangs_up() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _HangsUp)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/file"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_broken_download_is_not_kept(server_that_hangs_up: str, tmp_path: Path) -> None:
    with pytest.raises((FileFormatError, MissingDataError)):
        download_archive(Archive(server_that_hangs_up, "0" * 64), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_offline_the_error_says_what_to_put_where(tmp_path: Path) -> None:
    layout = dataclasses.replace(CIFAR100, archive=Archive("http://127.0.0.1:9/cifar-100-python.tar.gz", "0" * 64))
    with pytest.raises(MissingDataError) as caught:
        _load(layout, tmp_path, True, None)
    assert str(tmp_path / "cifar-100-python.tar.gz") in str(caught.value)


def _real() -> bool:
    return "DSAL_DATA" in os.environ and any(
        (data_root() / name).exists() for name in (CIFAR100.folder, CIFAR100.archive.filename)
    )


@pytest.mark.skipif(not _real(), reason="DSAL_DATA names no folder with CIFAR-100")
def test_the_real_cifar100() -> None:
    data = load_dataset("cifar100")
    assert data.train.images.shape == (50000, 3, 32, 32)
    assert data.test.images.shape == (10000, 3, 32, 32)
    assert data.train.labels.bincount().tolist() == [500] * 100
    assert data.test.labels.bincount().tolist() == [100] * 100
    assert data.class_names[:3] == ("apple", "aquarium_fish", "baby")
    # The channel means the field normalises with, whatever the order of the rows.
    means = data.train.images.double().mean((0, 2, 3)) / 255
    assert torch.allclose(means, torch.tensor([0.5071, 0.4866, 0.4409], dtype=torch.float64), atol=2e-4)
