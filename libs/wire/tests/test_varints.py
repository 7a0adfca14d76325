"""Unsigned varints: at most five bytes, at most 32 bits, and tagged fields passed over within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.errors import WireError
from kafscale.wire.varints import TAGS_MAX, encode_uvarint, skip_tags, uvarint
from wire_values import quick

BIGGEST = (1 << 32) - 1


@given(st.integers(0, BIGGEST), st.binary(max_size=4))
@quick(200)
def test_a_number_is_read_back_and_what_follows_is_left_alone(number: int, rest: bytes) -> None:
    data = encode_uvarint(number)
    assert uvarint(data + rest, 0) == (number, len(data))
    assert uvarint(memoryview(rest + data), len(rest)) == (number, len(rest) + len(data))


@pytest.mark.parametrize(
    ("number", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16383, "ff7f"), (16384, "808001"), (BIGGEST, "ffffffff0f")],
)
def test_numbers_have_these_bytes(number: int, data: str) -> None:
    assert encode_uvarint(number) == bytes.fromhex(data)


@pytest.mark.parametrize("data", ["8080808010", "ffffffff7f", "808080808000", "ffffffffffffffffff01"])
def test_more_than_32_bits_or_five_bytes_are_refused(data: str) -> None:
    with pytest.raises(WireError, match="32 bits"):
        uvarint(bytes.fromhex(data), 0)
    with pytest.raises(WireError, match="32 bits"):
        skip_tags(b"\x01" + bytes.fromhex(data) + bytes(9), 0)


def test_as_many_unknown_tags_as_the_bound_are_passed_over() -> None:
    data = encode_uvarint(TAGS_MAX) + b"\x09\x02ab" * TAGS_MAX
    assert skip_tags(data + b"rest", 0) == len(data)
    with pytest.raises(WireError, match="at most"):
        skip_tags(encode_uvarint(TAGS_MAX + 1) + bytes(2 * TAGS_MAX + 2), 0)
