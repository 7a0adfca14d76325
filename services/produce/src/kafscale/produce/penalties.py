"""Which partitions must not be claimed yet: the whole decision. Pure; all times are mono_ms.

A store that is full or refuses requests fails every new writer as it failed the last one, and each claim costs an
epoch: two keys of etcd, which every watcher receives, and a replay of the tail. The law: what refuses gets fewer calls,
not more. After such a step-down the partition answers a retriable error without a claim, for PENALTY_MS at first. The
penalty doubles with each further one, up to PENALTY_MAX_MS, until a commit of the partition succeeds.

One refused PUT ends the epochs of all partitions in its bundle. So while the store refuses, the instance lets only one
request at a time try again, after waits that double in the same way. The other requests get their error without a
claim, and nothing is claimed in the background. Any commit of the instance shows that the store takes records again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafscale.produce.log.model import StepDownReason
from kafscale.storage.keys import PartitionKey
from kafscale.wire.errors import ErrorCode

PENALTY_MS: Final = 500
DAMAGE_MS: Final = 10_000
"""Until damage is looked at again: a person must repair it first."""
PENALTY_MAX_MS: Final = 30_000
REMEMBERED_MS: Final = 60_000
"""After the end of a penalty: a later one is the first again."""

STORE: Final = frozenset(
    {StepDownReason.STORE_FULL, StepDownReason.STORE_REFUSED, StepDownReason.STORE_UNAVAILABLE}
)
PENALIZED: Final = STORE | {
    StepDownReason.FOREIGN_OBJECT,
    StepDownReason.COMMIT_REJECTED,
    StepDownReason.DAMAGED,
}


class _Penalty(NamedTuple):
    until_ms: int
    length_ms: int
    error: ErrorCode


class ClaimPenalties:
    """Bounded by the partitions that this instance lost within PENALTY_MAX_MS and REMEMBERED_MS."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, _Penalty] = {}  # the oldest first
        self._wait_ms: int | None = None  # for the next try, while the store refuses; None: it does not
        self._try_at_ms = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, key: PartitionKey, reason: StepDownReason, now_ms: int) -> None:
        """The partition has ended its epoch for one of the reasons `PENALIZED`."""
        first_ms = DAMAGE_MS if reason is StepDownReason.DAMAGED else PENALTY_MS
        known = self._partitions.pop(key, None)
        length_ms = first_ms if known is None else min(max(first_ms, 2 * known.length_ms), PENALTY_MAX_MS)
        self._partitions[key] = _Penalty(now_ms + length_ms, length_ms, reason.error)
        self._trim(now_ms)
        if reason in STORE and self._wait_ms is None:
            self._wait_ms = PENALTY_MS
            self._try_at_ms = now_ms + PENALTY_MS

    def error(self, key: PartitionKey, now_ms: int, *, background: bool = False) -> ErrorCode | None:
        """What to answer instead of claiming; None: claim, and report it by `claims`. `background`: no request waits
        for the claim, so it would not show whether the store takes records."""
        found = self._partitions.get(key)
        if found is not None and now_ms < found.until_ms:
            return found.error
        if self._wait_ms is not None and (background or now_ms < self._try_at_ms):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def claims(self, now_ms: int) -> None:
        """A request has a partition claimed. While the store refuses, it is the one that tries."""
        if self._wait_ms is not None:
            self._try_at_ms = now_ms + self._wait_ms
            self._wait_ms = min(2 * self._wait_ms, PENALTY_MAX_MS)

    def committed(self, key: PartitionKey) -> None:
        """Records of the partition are stored and committed."""
        self._wait_ms = None
        self._partitions.pop(key, None)

    def _trim(self, now_ms: int) -> None:
        while self._partitions:
            oldest = next(iter(self._partitions))
            if self._partitions[oldest].until_ms + REMEMBERED_MS > now_ms:
                return
            del self._partitions[oldest]
