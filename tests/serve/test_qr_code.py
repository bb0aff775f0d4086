"""QR codes, read again by a slow reader that follows the standard and shares nothing with the writer."""

import pytest

from dsal.errors import InputError
from dsal.serve.qr_code import in_terminal, qr_code

BLOCKS = {21: (19, 1), 25: (34, 1), 29: (55, 1), 33: (80, 1), 37: (108, 1), 41: (136, 2)}  # data bytes, blocks
CHECKS = {21: 7, 25: 10, 29: 15, 33: 20, 37: 26, 41: 18}


def is_pattern(side: int, row: int, column: int) -> bool:
    corner = (row < 9 and column < 9) or (row < 9 and column >= side - 8) or (row >= side - 8 and column < 9)
    alignment = side > 21 and side - 9 <= row < side - 4 and side - 9 <= column < side - 4
    return corner or alignment or row == 6 or column == 6


def power(exponent: int) -> int:
    value = 1
    for _ in range(exponent % 255):
        value = value << 1 ^ (0x11D if value & 0x80 else 0)
    return value


def times(a: int, b: int) -> int:
    logarithm = {power(i): i for i in range(255)}
    return power(logarithm[a] + logarithm[b]) if a and b else 0


def text_of(rows: list[str]) -> str:
    side = len(rows)
    level_and_mask = "".join(rows[8][c] for c in (0, 1, 2, 3, 4, 5, 7, 8)) + "".join(
        rows[r][8] for r in (7, 5, 4, 3, 2, 1, 0)
    )
    again = "".join(rows[r][8] for r in range(side - 1, side - 8, -1)) + rows[8][side - 8 :]
    assert level_and_mask == again
    assert int(level_and_mask, 2) ^ 0b101010000010010 == 0b01_000_1111010110  # L, mask 0, and its remainder
    assert rows[side - 8][8] == "1"
    columns, bits, up = [c for c in range(side - 1, -1, -1) if c != 6], "", True
    for right, left in zip(columns[::2], columns[1::2], strict=True):
        for row in reversed(range(side)) if up else range(side):
            for column in (right, left):
                if not is_pattern(side, row, column):
                    bits += str(int(rows[row][column]) ^ ((row + column) % 2 == 0))
        up = not up
    words = [int(bits[i : i + 8], 2) for i in range(0, len(bits) - 7, 8)]
    size, blocks = BLOCKS[side]
    data = [words[i:size:blocks] for i in range(blocks)]
    checks = [words[size + i : size + CHECKS[side] * blocks : blocks] for i in range(blocks)]
    for some, check in zip(data, checks, strict=True):
        word = [*some, *check]
        for root in range(len(check)):  # the polynomial is zero at every root of the generator
            value = 0
            for one in word:
                value = times(value, power(root)) ^ one
            assert value == 0
    stream = "".join(f"{word:08b}" for some in data for word in some)
    assert stream[:4] == "0100"
    length = int(stream[4:12], 2)
    return int(stream[12 : 12 + 8 * length], 2).to_bytes(length, "big").decode()


@pytest.mark.parametrize("length", [17, 18, 32, 53, 54, 78, 79, 106, 107, 134])
def test_a_code_can_be_read(length: int) -> None:
    text = ("http://192.168.178.23:8000/#token=" + "aB3-_xYz" * 20)[:length]
    rows = qr_code(text)
    assert {len(row) for row in rows} == {len(rows)}
    assert text_of(rows) == text


def test_finder_patterns_are_where_cameras_look_for_them() -> None:
    rows = qr_code("https://cups.example/قطط")
    for top, left in ((0, 0), (0, len(rows) - 7), (len(rows) - 7, 0)):
        assert [row[left : left + 7] for row in rows[top : top + 7]] == [
            "1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111",
        ]  # fmt: skip
    assert text_of(rows) == "https://cups.example/قطط"


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="at most 134 bytes"):
        qr_code("x" * 135)


def test_a_code_in_a_terminal() -> None:
    rows = qr_code("http://192.168.0.7:8000/")
    lines = [line.removeprefix("\x1b[97;40m").removesuffix("\x1b[0m") for line in in_terminal(rows).splitlines()]
    drawn = []
    for line in lines:
        drawn += ["".join("01"[sign in dark] for sign in line) for dark in (" ▄", " ▀")]
    assert [row[4:-4] for row in drawn[4 : 4 + len(rows)]] == rows
    assert set(drawn[3]) == {"0"}
