"""The two shapes bytes have here: one contiguous buffer, or a scatter list that is never joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
RecordsOut: TypeAlias = bytes | bytearray | memoryview | Sequence[bytes | bytearray | memoryview] | None
