"""Data sets of images, the registry of those that can be loaded by name, and the download of their archives."""

from __future__ import annotations

import hashlib
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path

from torch import Tensor

from dsal.base.options import user_folder
from dsal.base.progress import OnProgress
from dsal.base.registry import Registry
from dsal.data.images.image_files import FileData
from dsal.data.samples import ImageData
from dsal.errors import FileFormatError, MissingDataError
from dsal.files.atomic import atomic_write

EMBEDDED = Path(__file__).parent / "embedded"
"""The folder of data that ships with the package."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set of images in its two parts; ``fingerprint`` is the sha256 of its content, row order included.

    The images of a part are in memory or in files. Either way they are :class:`~dsal.data.samples.Samples`; ``at`` sets
    the size to which images in files are decoded, and ``in_memory`` decodes all of them at once.
    """

    name: str
    train: ImageData | FileData
    test: ImageData | FileData
    class_names: tuple[str, ...]
    fingerprint: str

    def at(self, size: int, channels: int) -> DataSet:
        """Return the same data set at ``size`` x ``size`` pixels; images in files get ``channels`` channels."""
        return replace(self, train=self.train.at(size, channels), test=self.test.at(size, channels))

    def keep(self, rows: Tensor) -> DataSet:
        """Return the same data set with only some of the training samples."""
        return replace(self, train=self.train.take(rows))


Loader = Callable[[Path, bool, OnProgress | None], DataSet]
"""(data root, whether to download what is missing, progress in bytes) -> data set."""

DATASETS: Registry[Loader] = Registry("data set", group="dsal.datasets")


def data_root() -> Path:
    """Return the default folder of data sets."""
    return user_folder("DSAL_DATA")


def fingerprint(*parts: ImageData) -> str:
    """Return the sha256 of the shapes, pixels and labels of ``parts``, in row order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(tuple(part.images.shape)).encode())
        digest.update(part.images.contiguous().numpy().data)
        digest.update(part.labels.contiguous().numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Archive:
    """A published file and the sha256 it is known to have."""

    url: str
    sha256: str

    @property
    def filename(self) -> str:
        return self.url.rpartition("/")[2]


def download_archive(archive: Archive, target: Path, progress: OnProgress | None = None) -> None:
    """Download ``archive`` to ``target``, which is written only if the file is complete and its checksum right.

    Args:
        archive: what to download.
        target: file to write; its folder is created.
        progress: called with (bytes so far, bytes in all); the second is 0 if the server does not send it.

    Raises:
        MissingDataError: no network, or the server does not answer.
        FileFormatError: the checksum is wrong.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with atomic_write(target) as part:
        try:
            with urllib.request.urlopen(archive.url, timeout=60) as response, part.open("wb") as file:
                total, done = int(response.headers.get("Content-Length") or 0), 0
                while chunk := response.read(1 << 20):
                    file.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, total)
        except (OSError, HTTPException) as error:  # no network, no answer, a lost connection
            raise MissingDataError(
                f"could not download {archive.url} ({error}). Without a network, fetch it elsewhere "
                f"and put it here: {target}"
            ) from error
        if digest.hexdigest() != archive.sha256:
            raise FileFormatError(
                f"{archive.url} has sha256 {digest.hexdigest()}, expected {archive.sha256}; the download was discarded"
            )


def find_archive(name: str, archive: Archive, folder: Path, download: bool, progress: OnProgress | None) -> Path:
    """Return the path of an archive beside its unpacked ``folder``; download it if both are missing.

    Raises:
        MissingDataError: both are missing, and ``download`` is False; or the download fails.
        FileFormatError: the checksum of the download is wrong.
    """
    path = folder.parent / archive.filename
    if not folder.is_dir() and not path.is_file():
        if not download:
            raise MissingDataError(
                f"{name} is not under {folder.parent}. Put the official archive there as {path} (from {archive.url}), "
                f"or the unpacked folder as {folder}, or allow the download."
            )
        download_archive(archive, path, progress)
    return path
