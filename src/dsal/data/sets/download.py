"""Download of archives, checked against their known sha256."""

from __future__ import annotations

import hashlib
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from dsal.base.progress import OnProgress
from dsal.errors import FileFormatError, MissingDataError
from dsal.files.atomic import atomic_write

_CHUNK = 1 << 20


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
                while chunk := response.read(_CHUNK):
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
