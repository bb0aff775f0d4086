"""Folders and tables of labelled images, and the mistakes users make with them."""

from collections import Counter
from pathlib import Path

import pytest

from dsal.data.images.decode import decode_image
from dsal.data.images.labelled_files import find_images, read_files
from dsal.errors import FileFormatError, InputError, MissingDataError


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_folder(tmp_path: Path) -> None:
    touch(tmp_path / "dog" / "b.JPG", tmp_path / "cat" / "deep" / "a.png", tmp_path / "cat" / "notes.txt")
    touch(tmp_path / "cat" / "._a.png", tmp_path / ".git" / "x.png", tmp_path / "loose.png")
    files = read_files(tmp_path)
    assert files.paths == (tmp_path / "cat" / "deep" / "a.png", tmp_path / "dog" / "b.JPG")
    assert files.labels == ("cat", "dog")
    assert files.counts() == {"cat": 1, "dog": 1}


def test_folder_below_a_hidden_one(tmp_path: Path) -> None:
    touch(tmp_path / ".data" / "cat" / "a.png")
    assert len(read_files(tmp_path / ".data")) == 1


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("\ufefflabel,path,more\ncat,a.png,1\ndog,/b/c.png,2\n", encoding="utf-8")
    files = read_files(tmp_path / "table.csv")
    assert files.paths == (tmp_path / "a.png", Path("/b/c.png"))
    assert files.labels == ("cat", "dog")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "first line must name the columns"),
        ("a.png,cat\n", "first line must name the columns"),
        ("path,label\n", "lists no images"),
        ("path,label\na.png,cat\nb.png,\n", "line 3"),
        ("path,label\na.png\n", "line 2"),
    ],
)
def test_wrong_csv(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_files(tmp_path / "table.csv")


def test_something_else(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(InputError, match="neither a folder nor a CSV"):
        read_files(tmp_path / "a.png")


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no such folder or file"):
        read_files(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no class folders"):
        read_files(tmp_path)
    touch(tmp_path / "a.png")
    with pytest.raises(InputError, match="has 1 images but no class folders"):
        read_files(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(InputError, match="without any image: cat"):
        read_files(tmp_path)


def test_find_images(tmp_path: Path) -> None:
    touch(tmp_path / "cat" / "b.png", tmp_path / "a.dat")
    (tmp_path / "empty").mkdir()
    assert find_images([tmp_path / "a.dat", tmp_path]) == (tmp_path / "a.dat", tmp_path / "cat" / "b.png")
    with pytest.raises(InputError, match="no such image"):
        find_images([tmp_path / "c.png"])
    with pytest.raises(InputError, match=r"holds no images$"):
        find_images([tmp_path / "empty"])


def test_heic_without_the_package_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of images, alone in a folder, and asked for by name: never without a word."""
    monkeypatch.setattr("dsal.data.images.labelled_files.find_spec", lambda name: None)
    monkeypatch.setattr("dsal.data.images.decode.find_spec", lambda name: None)
    touch(tmp_path / "mixed" / "b.png", tmp_path / "mixed" / "a.HEIC", tmp_path / "phone" / "a.heic")
    passed = Counter[str]()
    assert find_images([tmp_path / "mixed"], passed) == (tmp_path / "mixed" / "b.png",)
    assert passed == {".heic": 1}
    with pytest.raises(InputError, match=r"holds no images \(it has 1 .heic; pip install pillow-heif"):
        find_images([tmp_path / "phone"])
    (tmp_path / "a.heic").write_bytes(b"....ftypheic")
    with pytest.raises(FileFormatError, match=r"a\.heic: pip install pillow-heif"):
        decode_image(tmp_path / "a.heic", 8)
