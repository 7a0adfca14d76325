"""How large one answer may become.

Small requests may ask for large answers: all offsets of a group, all members of many. Law: an answer that does not fit
is refused before it is built, for those of the groups that do not fit, as INVALID_REQUEST: a smaller question has an
answer, and the same one again has not. Handlers name each thing once, however often the request does.
"""

from __future__ import annotations

from kafscale.wire.errors import ErrorCode

ANSWER_BYTES_MAX = 32 << 20
ENTRY_BYTES = 256
"""Of a member, a topic or a partition, in memory, beside its texts."""
TOO_LARGE = ErrorCode.INVALID_REQUEST
TOO_LARGE_WHY = f"The answer would have more than {ANSWER_BYTES_MAX} bytes; ask for less at a time."


class AnswerRoom:
    """Of one answer."""

    def __init__(self) -> None:
        self._left = ANSWER_BYTES_MAX

    def take(self, size: int) -> bool:
        """Whether so much more fits; then it is taken."""
        if size > self._left:
            return False
        self._left -= size
        return True
