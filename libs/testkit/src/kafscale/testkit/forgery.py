"""Records that an attacker makes: other bytes with the same CRC-32C, which no checksum of ours tells apart."""

from __future__ import annotations

from typing import Final

from kafscale.wire.batches import crc32c

POLYNOMIAL: Final = 0x11EDC6F41
"""Of CRC-32C (RFC 3720), with its first bit."""
_BITS: Final = POLYNOMIAL.bit_length()


def forged(data: bytes, at: int) -> bytes:
    """`data` with other bits in the five bytes from `at` on. A CRC is linear, and the bits of its polynomial, at any
    place, do not change it."""
    changed = bytearray(data)
    for n in range(_BITS):
        changed[at + n // 8] ^= (POLYNOMIAL >> (_BITS - 1 - n) & 1) << n % 8
    assert bytes(changed) != data
    assert crc32c(changed) == crc32c(data)
    return bytes(changed)
