"""Small files in CIFAR's official layout, as Python 2 wrote the published ones and as Python 3 rebuilds them."""

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dsal.data.sets.cifar import Layout

Dump = Callable[[dict[str, Any]], bytes]


class _Python2Pickler(pickle._Pickler):  # the Python one: its dispatch can be changed
    """Writes byte strings where Python 2 did: for every str, and for the content of arrays."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def _save_string(self, text: str | bytes) -> None:
        raw = text.encode("latin1") if isinstance(text, str) else text
        self.write(pickle.BINSTRING + len(raw).to_bytes(4, "little") + raw)
        self.memoize(text)

    dispatch[str] = _save_string
    dispatch[bytes] = _save_string


def dump_as_python2(content: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(content)
    return file.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")  # as every NumPy before 2 named it


def dump_as_python3(content: dict[str, Any]) -> bytes:
    return pickle.dumps(content, protocol=4)


def dump_with_bytes_keys(content: dict[str, Any]) -> bytes:
    return pickle.dumps({key.encode(): value for key, value in content.items()}, protocol=4)


def dump_at_protocol_5(content: dict[str, Any]) -> bytes:
    return pickle.dumps(content, protocol=5)


DUMPS: list[Dump] = [dump_as_python2, dump_as_python3, dump_with_bytes_keys, dump_at_protocol_5]


def contents(layout: Layout, rows: int = 7) -> dict[str, dict[str, Any]]:
    """What each file of the layout holds, with random pixels; the labels of a file start at its number."""
    rng = np.random.default_rng(0)
    names = [f"class {i}" for i in range(layout.classes)]
    files: dict[str, dict[str, Any]] = {layout.meta: {layout.names_key: names}}
    for number, member in enumerate((*layout.train, *layout.test)):
        pixels = rng.integers(0, 256, (rows, 3072), dtype=np.uint8)
        labels = [(number + i) % layout.classes for i in range(rows)]
        files[member] = {"data": pixels, layout.labels_key: labels, "batch_label": "a batch"}
    return files


def write_folder(root: Path, layout: Layout, dump: Dump = dump_as_python2, rows: int = 7) -> dict[str, dict[str, Any]]:
    folder = root / layout.folder
    folder.mkdir(parents=True)
    files = contents(layout, rows)
    for member, content in files.items():
        (folder / member).write_bytes(dump(content))
    return files


def write_archive(path: Path, layout: Layout, dump: Dump = dump_as_python2) -> dict[str, dict[str, Any]]:
    files = contents(layout)
    with tarfile.open(path, "w:gz") as tar:
        for member, content in files.items():
            raw = dump(content)
            info = tarfile.TarInfo(f"{layout.folder}/{member}")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return files
