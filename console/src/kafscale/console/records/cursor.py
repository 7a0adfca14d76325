"""A cut of a topic as text for an address: varints of (partition, offset) in base64, without padding. Pure."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

from kafscale.console.records.merge import Cut

TEXT_MAX: Final = 8_192
_OFFSET_BITS: Final = 63


def to_text(cut: Mapping[int, int]) -> str:
    packed = bytearray()
    last = -1
    for partition, offset in sorted(cut.items()):
        _put(packed, partition - last - 1)
        _put(packed, offset)
        last = partition
    return urlsafe_b64encode(packed).decode().rstrip("=")


def from_text(text: str) -> Cut:
    """Raises ValueError."""
    if len(text) > TEXT_MAX or not text.isascii():
        raise ValueError("no cursor of this console")
    packed = memoryview(b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    cut: Cut = {}
    last, at = -1, 0
    while at < len(packed):
        skipped, at = _take(packed, at)
        offset, at = _take(packed, at)
        last += skipped + 1
        cut[last] = offset
    return cut


def _put(packed: bytearray, number: int) -> None:
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _take(packed: memoryview, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, _OFFSET_BITS, 7):
        if at == len(packed):
            break
        number |= (packed[at] & 0x7F) << shift
        at += 1
        if packed[at - 1] < 0x80:
            return number, at
    raise ValueError("no cursor of this console")
