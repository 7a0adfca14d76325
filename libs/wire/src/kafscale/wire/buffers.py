"""The shapes bytes have here: one contiguous buffer, or a scatter list that is never joined; and work on them that is
long, as steps."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
RecordsOut: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview] | None

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Comes to its value in steps, so that whoever drives it can do something else in between."""
