"""controller_mutation_rate: how many partitions a client may create and delete (KIP-599).

Laws: from the version on that knows THROTTLING_QUOTA_EXCEEDED, a topic is refused while the client's bucket is below
zero, and refused topics cost nothing. Before that version every topic is accepted, and the client is throttled. Topics
that fail for another reason cost nothing. The answer carries the throttle time, and the front door mutes the client.
Each admin instance has its own buckets. Source: ControllerMutationQuotaManager.
"""

from __future__ import annotations

from typing import Final

from kafscale.access.principals import ANONYMOUS, Principal, name_of
from kafscale.access.quota import Limit, Meter, QuotaKey, QuotaTable
from kafscale.access.quota_rates import Meters, TokenBucket, Window
from kafscale.admin.plan import Refused
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.errors import ErrorCode

EXCEEDED: Final = Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED.message)


Buckets = Meters[Meter, TokenBucket]


class MutationQuota:
    """Of one request."""

    __slots__ = ("_buckets", "_clock", "_limit", "_strict", "_until_ms")

    def __init__(self, limit: Limit | None, buckets: Buckets, clock: Clock, *, strict: bool) -> None:
        self._limit = limit
        self._buckets = buckets
        self._clock = clock
        self._strict = strict
        self._until_ms: int | None = None

    @property
    def limits(self) -> bool:
        return self._limit is not None

    def take(self, partitions: int) -> Refused | None:
        """For a topic that would be created, extended or deleted otherwise."""
        limit = self._limit
        if limit is None:
            return None
        now_ms = self._clock.now_ms()
        bucket = self._buckets.of(limit.meter, now_ms)  # each time: a full bucket may be forgotten
        throttle_ms = (bucket.take if self._strict else bucket.take_anyway)(partitions, limit.value, now_ms)
        if throttle_ms:
            self._until_ms = max(self._until_ms or 0, now_ms + throttle_ms)
        return EXCEEDED if throttle_ms and self._strict else None

    @property
    def throttle_ms(self) -> int:
        """For the answer: what is left of the throttle time."""
        return 0 if self._until_ms is None else max(0, self._until_ms - self._clock.now_ms())


class MutationQuotas:
    """Of one admin instance."""

    def __init__(self, table: QuotaTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._buckets: Buckets = Meters(TokenBucket, Window())

    def of(self, meta: RequestMeta, *, strict_from: int) -> MutationQuota:
        """`strict_from`: the first version that knows the error."""
        user = name_of(Principal(meta.principal) if meta.principal else ANONYMOUS)
        limit = self._table.limit(QuotaKey.CONTROLLER_MUTATION_RATE, user, meta.client_id or "")
        return MutationQuota(limit, self._buckets, self._clock, strict=meta.api_version >= strict_from)
