"""QR codes (ISO/IEC 18004) of short texts such as addresses: bytes, versions 1 to 6, error correction L.

These versions need neither version information nor more than one alignment pattern.
"""

from __future__ import annotations

from collections.abc import Iterator

from dsal.errors import InputError

_BLOCKS = ((19, 7, 1), (34, 10, 1), (55, 15, 1), (80, 20, 1), (108, 26, 1), (68, 18, 2))
"""By version: bytes of data and of error correction in a block, and the number of blocks."""
_FORMAT = 0b111011111000100  # of level L with mask 0: dark where row + column is even
_FINDER = ("1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111")
_ALIGNMENT = ("11111", "10001", "10101", "10001", "11111")
_QUIET = 4  # light modules around the code


def qr_code(text: str) -> list[str]:
    """Return the rows of the code as texts of 0 (light) and 1 (dark), without the light margin that it needs.

    Raises:
        InputError: the text has more than 134 bytes in UTF-8.
    """
    data = text.encode()
    version = next((v for v, (size, _, n) in enumerate(_BLOCKS, 1) if len(data) + 2 <= size * n), None)
    if version is None:
        raise InputError(f"a QR code can hold at most 134 bytes here, got {len(data)}")
    side = 17 + 4 * version
    modules = _patterns(version, side)
    bits = (byte >> (7 - i) & 1 for byte in _codewords(data, version) for i in range(8))
    for row, column in _path(side):
        if (row, column) not in modules:
            modules[row, column] = next(bits, 0) ^ (row + column + 1) % 2
    return ["".join(str(modules[row, column]) for column in range(side)) for row in range(side)]


def in_terminal(rows: list[str]) -> str:
    """Return a code for a terminal of any colours: two rows of modules per line, white on black."""
    width = len(rows) + 2 * _QUIET
    margin = ["0" * width] * _QUIET
    padded = [*margin, *("0" * _QUIET + row + "0" * _QUIET for row in rows), *margin]
    padded += ["1" * width] * (len(padded) % 2)
    signs = {"00": "█", "01": "▀", "10": "▄", "11": " "}
    lines = ("".join(signs[a + b] for a, b in zip(*padded[i : i + 2], strict=True)) for i in range(0, len(padded), 2))
    return "\n".join(f"\x1b[97;40m{line}\x1b[0m" for line in lines)


def _codewords(data: bytes, version: int) -> Iterator[int]:
    """Yield the bytes of the code: data and error correction, each interleaved over the blocks."""
    size, checks, blocks = _BLOCKS[version - 1]
    whole = int.from_bytes(data, "big") << 4 | (0b0100 << 8 | len(data)) << (8 * len(data) + 4)  # mode, length, data, 0
    filled = [*whole.to_bytes(len(data) + 2, "big")]
    filled += [(0xEC, 0x11)[i % 2] for i in range(size * blocks - len(filled))]
    parts = [filled[i * size : (i + 1) * size] for i in range(blocks)]
    for some in (parts, [_check_bytes(part, checks) for part in parts]):
        for column in zip(*some, strict=True):
            yield from column


def _check_bytes(data: list[int], count: int) -> list[int]:
    """Return the remainder of the data, a polynomial over GF(256), by (x - 1)(x - 2)(x - 4)... of degree ``count``."""
    generator, root = [1], 1
    for _ in range(count):
        generator = [a ^ _times(root, b) for a, b in zip([*generator, 0], [0, *generator], strict=True)]
        root = _times(root, 2)
    rest = [*data, *[0] * count]
    for i in range(len(data)):
        rest[i : i + count + 1] = [a ^ _times(rest[i], b) for a, b in zip(rest[i:], generator, strict=False)]
    return rest[len(data) :]


def _times(a: int, b: int) -> int:
    """Multiply in GF(256) with the polynomial x^8 + x^4 + x^3 + x^2 + 1."""
    product = 0
    while b:
        product ^= a * (b & 1)
        a, b = a << 1 ^ (a >> 7) * 0x11D, b >> 1
    return product


def _patterns(version: int, side: int) -> dict[tuple[int, int], int]:
    """Return the modules that do not depend on the text."""
    modules: dict[tuple[int, int], int] = {}
    for top, left in ((0, 0), (0, side - 7), (side - 7, 0)):
        for row in range(max(top - 1, 0), min(top + 8, side)):
            for column in range(max(left - 1, 0), min(left + 8, side)):
                modules[row, column] = 0
        _stamp(modules, _FINDER, top, left)
    if version > 1:
        _stamp(modules, _ALIGNMENT, side - 9, side - 9)
    for i in range(8, side - 8):
        modules[6, i] = modules[i, 6] = (i + 1) % 2
    bits = [_FORMAT >> i & 1 for i in range(15)]
    around = [*((i, 8) for i in (0, 1, 2, 3, 4, 5, 7, 8)), *((8, i) for i in (7, 5, 4, 3, 2, 1, 0))]
    apart = [*((8, side - 1 - i) for i in range(8)), *((side - 7 + i, 8) for i in range(7))]
    modules.update(zip(around, bits, strict=True))
    modules.update(zip(apart, bits, strict=True))
    modules[side - 8, 8] = 1
    return modules


def _stamp(modules: dict[tuple[int, int], int], pattern: tuple[str, ...], top: int, left: int) -> None:
    for row, line in enumerate(pattern):
        for column, bit in enumerate(line):
            modules[top + row, left + column] = int(bit)


def _path(side: int) -> Iterator[tuple[int, int]]:
    """Yield all places in the order of the bits: pairs of columns from the right, upwards and downwards in turn."""
    rights = [*range(side - 1, 6, -2), 5, 3, 1]  # without the column of the timing pattern
    for number, right in enumerate(rights):
        for row in range(side - 1, -1, -1) if number % 2 == 0 else range(side):
            yield row, right
            yield row, right - 1
