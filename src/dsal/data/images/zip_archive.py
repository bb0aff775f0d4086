"""Images inside a zip archive, read one at a time; nothing is unpacked, so no path inside it can do harm."""

from __future__ import annotations

import lzma
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from dsal.errors import FileFormatError
from dsal.files.atomic import check_readable

MOST_BYTES = 2**28  # of one file
MOST_TOTAL = 2**36  # of all files together; both are sizes after decompression
_DAMAGED = (BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


@dataclass(frozen=True, eq=False)
class ZipImage:
    """A file in an archive; reading is safe from several threads."""

    archive: ZipFile
    info: ZipInfo

    def __str__(self) -> str:
        return f"{self.archive.filename}/{self.info.filename}"

    @property
    def path(self) -> PurePosixPath:
        """Its name inside the archive."""
        return PurePosixPath(self.info.filename)

    def read_bytes(self) -> bytes:
        """Return the content.

        Raises:
            FileFormatError: the file is damaged, or larger than :data:`MOST_BYTES`.
        """
        if self.info.file_size > MOST_BYTES:
            raise FileFormatError(f"{self} has {self.info.file_size} bytes; an image may have at most {MOST_BYTES}")
        try:
            with self.archive.open(self.info) as file:
                return file.read(self.info.file_size)  # not more than declared, and its checksum is checked
        except _DAMAGED as error:
            raise FileFormatError(f"{self} is damaged: {error}") from error


def open_archive(path: Path) -> list[ZipImage]:
    """List all files of a zip archive, sorted by name.

    Raises:
        FileFormatError: the file is not a zip archive, is damaged or encrypted, contains a path that leads outside
            it, or unpacks to more than :data:`MOST_TOTAL` bytes.
    """
    try:
        archive = ZipFile(check_readable(path))
    except _DAMAGED as error:
        if isinstance(error, FileNotFoundError | FileFormatError):
            raise
        raise FileFormatError(f"{path} is not a zip archive or is damaged: {error}") from error
    members = [info for info in archive.infolist() if not info.is_dir()]
    for info in members:
        name = info.filename
        if info.flag_bits & 1:
            raise FileFormatError(f"{path} is encrypted: make an archive without a password")
        if name.startswith("/") or "\\" in name or ":" in name.split("/")[0] or ".." in name.split("/"):
            raise FileFormatError(f"{path} contains {name!r}, a path that leads outside the archive; nothing was read")
    total = sum(info.file_size for info in members)
    if total > MOST_TOTAL:
        raise FileFormatError(f"{path} unpacks to {total} bytes; at most {MOST_TOTAL} are read: split it")
    return sorted((ZipImage(archive, info) for info in members), key=lambda member: member.path)
