"""The texts of connections that are still talking, so that they are not coded again with each request.

The law: what is kept is bounded in bytes, whatever clients call themselves and however many come and go. Nobody says
when a connection has ended, so all is forgotten when there is too much of it; whoever still talks is learnt anew.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

KNOWN_MAX: Final = 2_048
"""As many clients of a stream as talk at a time."""
KNOWN_BYTES_MAX: Final = 256
"""Encoded; a longer text, such as a client id of 32 KiB, is coded each time."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KnownTexts(Generic[K, V]):
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: K) -> V | None:
        return self._known.get(key)

    def learn(self, key: K, value: V, encoded_bytes: int) -> None:
        if encoded_bytes > KNOWN_BYTES_MAX:
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = value
