"""Whether a request may enter: memory, and the state of etcd.

While etcd gives no answer to a commit, nothing can be acknowledged, so only a quarter of the memory
is open to new requests; what is in flight keeps the rest. While etcd is out of space a commit may be
applied or not, so nothing new is started. Both answers are definite and retriable.
"""

from __future__ import annotations

from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.committer import Committer
from kafscale.wire.errors import ErrorCode

DEGRADED_SHARE = 0.25
UNRESOLVED_TOLERATED_MS = 1_000


class Admission:
    """Reserves at admission; whoever answers the request releases."""

    def __init__(self, budget: MemoryBudget, committer: Committer) -> None:
        self._budget = budget
        self._committer = committer

    def admit(self, size: int) -> ErrorCode:
        committer = self._committer
        share = 1.0
        if committer.has_unknown:
            if committer.out_of_space():
                return ErrorCode.KAFKA_STORAGE_ERROR
            if committer.unresolved_ms() > UNRESOLVED_TOLERATED_MS:
                share = DEGRADED_SHARE
        if not self._budget.reserve(size, share=share):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def release(self, size: int) -> None:
        self._budget.release(size)
