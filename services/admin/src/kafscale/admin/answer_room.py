"""How large an answer may become: a running size, so that one which would be too large is never built whole. Pure.

Requests are small beside what they may ask for: every topic with all its partitions, every config with its
documentation. Handlers count what they are about to add, in bytes on the wire and rounded up, and what does not fit is
that request's failure (INVALID_REQUEST): nobody else's answer waits for it, and nothing is tried again elsewhere.
"""

from __future__ import annotations

from kafscale.admin.plan import Refused
from kafscale.wire.errors import ErrorCode


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
    def refusal(self) -> Refused:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"The answer would be larger than {self._bytes_max} bytes (KAFSCALE_ANSWER_BYTES_MAX): "
            "ask for less at once.",
        )
