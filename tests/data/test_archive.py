"""Zip archives of class folders: read as the folder would be, and refused with one line where they are not safe."""

import tracemalloc
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from PIL import Image

from dsal.data.images import labelled_files
from dsal.data.images.decode import decode_image
from dsal.data.images.labelled_files import LOOSE, read_files, read_folder
from dsal.errors import FileFormatError, InputError


def png(value: int = 0) -> bytes:
    file = BytesIO()
    Image.fromarray(np.full((16, 16), value, np.uint8)).save(file, "png")
    return file.getvalue()


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


FILES = {"dog/b.PNG": png(1), "cat/deep/a.png": png(2), "cat/notes.txt": b"", "loose.png": png(), "cat/._a.png": b""}


@pytest.mark.parametrize("around", ["", "animals/"])
def test_as_the_folder_unpacked(tmp_path: Path, around: str) -> None:
    content = {around + name: data for name, data in FILES.items()}
    path = zipped(tmp_path / "a.zip", {**content, "__MACOSX/cat/a.png": b"", "__MACOSX/x": b""})
    with ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    files, folder = read_files(path), read_folder(tmp_path / "out" / around)
    assert files.labels == folder.labels == ("cat", "dog")
    assert files.passed == folder.passed == {".txt": 1, LOOSE: 1}
    for member, file in zip(files.paths, folder.paths, strict=True):
        assert np.array_equal(decode_image(member, 8), decode_image(file, 8))
    assert str(files.paths[0]) == f"{path}/{around}cat/deep/a.png"


@pytest.mark.parametrize("name", ["../cat/a.png", "/cat/a.png", "cat/../../a.png", "C:/cat/a.png", "cat\\..\\a.png"])
def test_names_that_lead_out(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "a.zip", {"cat/a.png": png(), name: png()})
    with pytest.raises(FileFormatError, match="leads outside the archive"):
        read_files(path)


def test_no_archive_and_no_classes(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", FILES)
    (tmp_path / "b.zip").write_bytes(path.read_bytes()[:-30])
    with pytest.raises(FileFormatError, match=r"b\.zip is not a zip archive"):
        read_files(tmp_path / "b.zip")
    with pytest.raises(InputError, match="has 1 images but no class folders"):
        read_files(zipped(tmp_path / "c.zip", {"a.png": png()}))
    with pytest.raises(InputError, match="without any image: dog"):
        read_files(zipped(tmp_path / "d.zip", {"cat/a.png": png(), "dog/notes.txt": b""}))
    content = bytearray(path.read_bytes())
    for place in range(len(content)):
        if content[place : place + 4] in (b"PK\x01\x02", b"PK\x03\x04"):
            content[place + (8 if content[place + 2] == 1 else 6)] |= 1
    (tmp_path / "e.zip").write_bytes(bytes(content))
    with pytest.raises(FileFormatError, match="encrypted"):
        read_files(tmp_path / "e.zip")


def test_only_the_damaged_file_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"cat/a.png": png(), "dog/b.png": png()})
    content = bytearray(path.read_bytes())
    content[45] ^= 255  # inside the first file
    path.write_bytes(bytes(content))
    first, second = read_files(path).paths
    with pytest.raises(FileFormatError, match=r"a\.zip/cat/a\.png"):
        decode_image(first, 8)
    assert decode_image(second, 8).shape == (3, 8, 8)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(tmp_path / "a.zip", {"cat/a.png": bytes(100_000), "dog/b.png": png()})
    monkeypatch.setattr(labelled_files, "MOST_BYTES", 50_000)
    with pytest.raises(FileFormatError, match="has 100000 bytes; an image may have at most 50000"):
        read_files(path).paths[0].read_bytes()
    monkeypatch.setattr(labelled_files, "MOST_TOTAL", 90_000)
    with pytest.raises(FileFormatError, match="at most 90000 are read: split it"):
        read_files(path)


def test_a_file_that_inflates_to_more_than_it_declares_is_not_inflated(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("a/x.png", bytes(50_000_000))
    data = bytearray(path.read_bytes())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # its size in both headers
        at = data.index(signature) + place
        data[at : at + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    (image,) = labelled_files.open_archive(path)
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="damaged"):
        image.read_bytes()
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
