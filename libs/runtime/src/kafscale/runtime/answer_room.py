"""The size limit of one response, counted while it is built. Pure.

A small request may ask for much: every topic with all its partitions, every config with its documentation, all offsets
of a group. Handlers add each topic, config or offset once, however often the request names it, and first count its
bytes, rounded up. Law: a response that would be too large is refused with INVALID_REQUEST before it is built. A retry
of the same request would fail again; a smaller request succeeds. Other requests do not wait for it.
"""

from typing import Final

from kafscale.wire.errors import ErrorCode

TOO_LARGE: Final = ErrorCode.INVALID_REQUEST
ENTRY_BYTES: Final = 256
"""Memory of a member, a topic or a partition without its strings."""


class AnswerRoom:
    """The bytes that are left for one response."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._left = bytes_max

    def take(self, size: int) -> bool:
        """Takes `size` bytes if they fit. If not, takes none, so that a smaller entry may still fit."""
        if size > self._left:
            return False
        self._left -= size
        return True

    @property
    def refusal(self) -> str:
        """The error message for TOO_LARGE."""
        return (
            f"The answer would be larger than {self._bytes_max} bytes (KAFSCALE_ANSWER_BYTES_MAX): "
            "ask for less at once."
        )
