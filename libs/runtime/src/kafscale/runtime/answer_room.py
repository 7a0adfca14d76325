"""How large one answer may become: a running size, so that one which would be too large is never built whole. Pure.

Requests are small beside what they may ask for: every topic with all its partitions, every config with its
documentation, all offsets of a group. Handlers name each thing once, however often the request does, and count what
they are about to add, in bytes and rounded up. Law: what does not fit is refused before it is built, as
INVALID_REQUEST: a smaller question has an answer, and the same one again has not. Nobody else's answer waits for it.
"""

from typing import Final

from kafscale.wire.errors import ErrorCode

TOO_LARGE: Final = ErrorCode.INVALID_REQUEST
ENTRY_BYTES: Final = 256
"""Of a member, a topic or a partition, in memory, beside its texts."""


class AnswerRoom:
    """Of one answer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._left = bytes_max

    def take(self, size: int) -> bool:
        """Whether `size` bytes more fit. What did not fit took nothing: something smaller still may."""
        if size > self._left:
            return False
        self._left -= size
        return True

    @property
    def refusal(self) -> str:
        """The sentence that goes with TOO_LARGE."""
        return (
            f"The answer would be larger than {self._bytes_max} bytes (KAFSCALE_ANSWER_BYTES_MAX): "
            "ask for less at once."
        )
