"""Which clients are over a quota, and until when. Pure: requests, their cost and `now` in, throttle times out.

Laws: usage counts on the meter of the quota that applies to the client (kafscale.access.quota), so all connections with
that meter share it. A request is never refused because of a quota, except a Fetch: while a client is over its quota, a
Fetch without a session gets an empty answer before any service is asked. What a service has read is sent and counted,
so no byte is read twice; a Fetch is asked for what is left of the window. An answer says at most THROTTLE_MS_MAX; for
request_percentage a throttle time is at most one sample. The first request of a connection waits for the throttle time
of its meter (`owed_ms`). So a client that opens a connection for each request gets no more than one that keeps its
connection, which is muted.

Kafka empties the answer that exceeds the quota and reads the records again later. The rates are the same.
Sources: ClientQuotaManager, ClientRequestQuotaManager, KafkaApis.handleProduceRequest and handleFetchRequest (KIP-13,
KIP-124, KIP-219).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kafscale.access.principals import Principal, name_of
from kafscale.access.quota import Limit, Meter, QuotaKey, QuotaTable
from kafscale.access.quota_rates import METERS_MAX, Meters, Window, WindowedRate, fetch_bytes_max

THROTTLE_MS_MAX: Final = 300_000
PERCENT_PER_NS: Final = 100 / 1e9
"""A second of work in a second is 100 percent: one core."""
LONG: Final = 4
"""Windows after which another worker counts as idle."""
Dues = dict[QuotaKey, tuple[Meter, int]]
"""Of one connection: the meters of which it has used something, and until when it is throttled beyond its mute."""
MEASURED: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)


@dataclass(slots=True, eq=False)
class Usage:
    """Of one request, while any quota is set. `began_ns`: of the work that is under way, 0 if none is. `dues`: of its
    connection."""

    user: str
    client_id: str
    began_ns: int
    work_ns: int = 0
    throttled_until_ms: int = 0
    dues: Dues = field(default_factory=dict)

    def end_work(self, now_ns: int) -> None:
        self.work_ns += now_ns - self.began_ns if self.began_ns else 0
        self.began_ns = 0

    def throttle_ms(self, now_ms: int) -> int:
        """The rest of the throttle time."""
        return max(0, self.throttled_until_ms - now_ms)


class ClientQuotas:
    def __init__(
        self,
        table: QuotaTable,
        window: Window,
        throttled: Callable[[QuotaKey, int], None],
        counted: Callable[[QuotaKey, Meter, float], None] | None = None,
    ) -> None:
        """`throttled` is called with every throttle time, `counted` with all usage that counts."""
        self.table = table
        self._window = window
        self._throttled = throttled
        self._counted = counted
        self._rates: dict[QuotaKey, Meters[Meter, WindowedRate]] = {
            key: Meters(WindowedRate, window) for key in MEASURED
        }
        long = Window(samples=window.samples, sample_ms=LONG * window.sample_ms)
        self._others: tuple[dict[QuotaKey, Meters[tuple[int, Meter], WindowedRate]], ...] = tuple(
            {key: Meters(WindowedRate, one) for key in MEASURED} for one in (window, long)
        )
        self._workers: set[int] = set()  # other ones that have counted usage
        self._owed: dict[tuple[QuotaKey, Meter], int] = {}

    def begin(
        self,
        principal: Principal,
        client_id: str | None,
        now_ns: int,
        dues: Dues | None = None,
    ) -> Usage:
        """A request has arrived. `dues`: of its connection."""
        return Usage(name_of(principal), client_id or "", now_ns, dues={} if dues is None else dues)

    def owed_ms(self, usage: Usage, key: QuotaKey, now_ms: int) -> int:
        """How long the request must wait before it may use more of the quota.

        A connection that has used something of it has waited while it was muted, and waits for what is left of a longer
        throttle time. Any other waits for that of its meter. Otherwise a client that opens a connection for each
        request would never be throttled.
        """
        limit = self.table.limit(key, usage.user, usage.client_id)
        if limit is None:
            return 0
        meter, until_ms = usage.dues.get(key, (None, 0))
        if meter != limit.meter:
            until_ms = self._owed.get((key, limit.meter), 0)
        return max(0, until_ms - now_ms)

    def produced(self, usage: Usage, request_bytes: int, now_ms: int) -> None:
        """The request is a Produce. It counts when it arrives, as the bytes are here."""
        self._charge(usage, QuotaKey.PRODUCER_BYTE_RATE, request_bytes, now_ms)

    def fetch_bytes(self, usage: Usage, wanted_bytes: int, now_ms: int) -> int:
        """How large the answer of a Fetch may be. 0: the client is over its quota, and gets an empty answer."""
        limit, rate = self._meter(usage, QuotaKey.CONSUMER_BYTE_RATE, now_ms)
        if limit is None or rate is None:
            return wanted_bytes
        throttle_ms = rate.throttle_ms(limit.value, now_ms, at_most_ms=THROTTLE_MS_MAX)
        if throttle_ms:
            self._throttle(usage, QuotaKey.CONSUMER_BYTE_RATE, throttle_ms, now_ms)
            return 0
        return max(1, min(wanted_bytes, fetch_bytes_max(rate, limit.value, self._window, now_ms)))

    def fetched(self, usage: Usage, answer_bytes: int, now_ms: int) -> None:
        """The request is a Fetch, and this is its answer. An empty one because of the quota does not count."""
        if not usage.throttled_until_ms:
            self._charge(usage, QuotaKey.CONSUMER_BYTE_RATE, answer_bytes, now_ms)

    def worked(self, usage: Usage, now_ms: int, now_ns: int) -> None:
        """The request has its answer: the work until now counts."""
        usage.end_work(now_ns)
        self._charge(usage, QuotaKey.REQUEST_PERCENTAGE, usage.work_ns * PERCENT_PER_NS, now_ms)

    def throttled(self, usage: Usage, key: QuotaKey, throttle_ms: int, now_ms: int) -> None:
        """A service has counted the request, and may have throttled the client."""
        limit = self.table.limit(key, usage.user, usage.client_id)
        if limit is not None:
            self._owe(usage, key, limit.meter, throttle_ms, now_ms)
        self._throttle(usage, key, throttle_ms, now_ms)

    def other_used(self, worker: int, key: QuotaKey, meter: Meter, amount: float, now_ms: int) -> None:
        """Another worker of this front door has counted usage."""
        self._workers.add(worker)
        for others in self._others:
            others[key].of((worker, meter), now_ms).record(amount, now_ms)

    def _share(self, key: QuotaKey, limit: Limit, now_ms: int) -> Limit:
        """What the other workers leave of the quota, and at least an equal part among those that use it.

        Each keeps to its part by its own usage, of which it knows at once. What it knows of the others is old.
        """
        used = [self._used_by(worker, key, limit.meter, now_ms) for worker in self._workers]
        share = max(limit.value / (1 + sum(rate > 0 for rate in used)), limit.value - sum(used))
        return Limit(share, limit.meter)

    def _used_by(self, worker: int, key: QuotaKey, meter: Meter, now_ms: int) -> float:
        """The higher one of its rates over one window and over LONG: a worker whose clients are throttled now is not
        idle."""
        rates = (others[key].find((worker, meter)) for others in self._others)
        return max(0.0 if rate is None else rate.per_second(now_ms) for rate in rates)

    def _charge(self, usage: Usage, key: QuotaKey, amount: float, now_ms: int) -> None:
        limit, rate = self._meter(usage, key, now_ms)
        if limit is None or rate is None:
            return
        rate.record(amount, now_ms)
        if self._counted is not None:
            self._counted(key, limit.meter, amount)
        throttle_ms = rate.throttle_ms(limit.value, now_ms)
        if key is QuotaKey.REQUEST_PERCENTAGE:
            throttle_ms = min(throttle_ms, self._window.sample_ms)
        self._owe(usage, key, limit.meter, throttle_ms, now_ms)
        self._throttle(usage, key, throttle_ms, now_ms)

    def _owe(self, usage: Usage, key: QuotaKey, meter: Meter, throttle_ms: int, now_ms: int) -> None:
        """The whole time until the rate is at the limit. A connection is muted for at most THROTTLE_MS_MAX of it."""
        usage.dues[key] = (meter, now_ms + throttle_ms if throttle_ms > THROTTLE_MS_MAX else 0)
        if not throttle_ms:
            return
        owed = self._owed
        until_ms = max(now_ms + throttle_ms, owed.pop((key, meter), 0))
        while owed and (len(owed) >= METERS_MAX or owed[next(iter(owed))] <= now_ms):
            del owed[next(iter(owed))]
        owed[key, meter] = until_ms

    def _meter(
        self, usage: Usage, key: QuotaKey, now_ms: int
    ) -> tuple[Limit, WindowedRate] | tuple[None, None]:
        limit = self.table.limit(key, usage.user, usage.client_id)
        if limit is None:
            return None, None
        if self._workers:
            limit = self._share(key, limit, now_ms)
        return limit, self._rates[key].of(limit.meter, now_ms)

    def _throttle(self, usage: Usage, key: QuotaKey, throttle_ms: int, now_ms: int) -> None:
        throttle_ms = min(throttle_ms, THROTTLE_MS_MAX)
        if throttle_ms:
            self._throttled(key, throttle_ms)
            usage.throttled_until_ms = max(usage.throttled_until_ms, now_ms + throttle_ms)
