"""Bytes from a stranger to pixels: how large an image claims to be is known before it is decoded."""

from __future__ import annotations

import io

import torch
from PIL import Image
from torch import Tensor

from dsal.data.decode import decode_image
from dsal.errors import FileFormatError


def decode_bytes(data: bytes, size: int, channels: int, max_pixels: int) -> Tensor:
    """Pixels of an image file in memory, uint8 (channels, size, size): see :func:`dsal.data.decode.decode_image`.

    Raises:
        FileFormatError: it is not an image, truncated, or larger than ``max_pixels``.
    """
    try:
        with Image.open(io.BytesIO(data)) as file:
            width, height = file.size
    except Exception as error:  # Pillow's readers answer garbage with any kind of exception
        raise FileFormatError("it is not an image, or of a format that is not supported") from error
    if width * height > max_pixels:
        raise FileFormatError(f"it has {width} x {height} pixels; at most {max_pixels} are read")
    try:
        return torch.from_numpy(decode_image(data, size, channels))
    except FileFormatError as error:
        raise FileFormatError(str(error).partition(": ")[2]) from error  # the caller knows which image it is
