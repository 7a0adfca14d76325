"""Types for bytes: one contiguous buffer, or a scatter list that is never joined. And a type for long work in steps."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
RecordsOut: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview] | None

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A generator that returns its value after many steps, so that the caller can do other work in between."""
