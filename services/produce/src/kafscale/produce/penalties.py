"""Keeps a writer that failed by itself from being claimed again at once.

Pure. A store that is full or refuses us fails every new writer as it failed the last one, and each
claim costs an epoch. The law: after such a step-down the partition answers the same retriable error
for a while without a claim, so that retrying clients cost nothing.
"""

from __future__ import annotations

from kafscale.produce.log.model import StepDownReason
from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode

PENALTY_MS = 500
DAMAGE_MS = 10_000
"""Until damage is looked at again: a person must have mended it first."""
DESERVING = frozenset(
    {
        StepDownReason.FOREIGN_OBJECT,
        StepDownReason.STORE_FULL,
        StepDownReason.STORE_REFUSED,
        StepDownReason.STORE_UNAVAILABLE,
        StepDownReason.COMMIT_REJECTED,
        StepDownReason.DAMAGED,
    }
)


class Penalties:
    """Partitions that must not be claimed yet. Bounded by the partitions that this instance had."""

    def __init__(self) -> None:
        self._until: dict[tuple[TopicId, int], tuple[int, ErrorCode]] = {}

    def add(
        self, key: tuple[TopicId, int], error: ErrorCode, now_ms: int, penalty_ms: int = PENALTY_MS
    ) -> None:
        self._until[key] = (now_ms + penalty_ms, error)

    def error(self, key: tuple[TopicId, int], now_ms: int) -> ErrorCode | None:
        """What to answer instead of claiming; None: claim."""
        found = self._until.get(key)
        if found is None:
            return None
        until_ms, error = found
        if now_ms < until_ms:
            return error
        del self._until[key]
        return None
