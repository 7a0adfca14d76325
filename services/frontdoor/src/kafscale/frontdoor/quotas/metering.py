"""Measures requests while quotas are set, and mutes the connections of clients that exceed them: the shell.

Law: without a quota for any client nothing is measured, and a request costs one look at `table.limits_clients`.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Final

from kafscale.access.quota import QuotaKey, QuotaTable
from kafscale.access.quota_rates import Window
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.quotas.client_quotas import ClientQuotas
from kafscale.frontdoor.quotas.throttle_time import throttle_time_of, with_throttle_time
from kafscale.frontdoor.quotas.usage_page import SharedUsage
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.clock import Clock
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer

PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
SHARE_S: Final = 0.25
MUTATIONS: Final = frozenset(map(int, (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS)))
"""Admin counts the mutations, and its answers carry the throttle time."""


def window_of(settings: FrontdoorSettings) -> Window:
    return Window(samples=settings.quota_window_num, sample_ms=settings.quota_window_size_seconds * 1_000)


class Metering:
    def __init__(
        self,
        table: QuotaTable,
        window: Window,
        clock: Clock,
        throttled: Callable[[QuotaKey, int], None],
        *,
        shared: SharedUsage | None = None,
        work_clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        """`throttled` is called with every throttle time. `shared`: with other processes.
        `work_clock`: nanoseconds, for the work of the front door."""
        self.table = table
        self._shared = shared
        self._quotas = ClientQuotas(table, window, throttled, None if shared is None else shared.counted)
        self._clock = clock
        self._work_clock = work_clock

    async def share(self) -> None:
        """Until cancelled: learns what the other workers, and other front doors, have counted."""
        while self._shared is not None:
            await asyncio.sleep(SHARE_S)
            if self.table.limits_clients:
                now_ms = self._clock.now_ms()
                for other, key, meter, amount in self._shared.news():
                    self._quotas.other_used(other, key, meter, amount, now_ms)

    def run(self, exchange: Exchange, handle: Callable[[Exchange], None]) -> None:
        """In place of the handler, while quotas are set."""
        request = exchange.request
        usage = exchange.usage = self._quotas.begin(
            exchange.caller.principal, request.header.client_id, self._work_clock()
        )
        if request.header.api_key == PRODUCE:
            self._quotas.produced(usage, request.size, self._clock.now_ms())
            if usage.throttled_until_ms:
                exchange.mute(usage.throttled_until_ms)
        handle(exchange)
        usage.end_work(self._work_clock())

    def fetch_bytes(self, exchange: Exchange, wanted_bytes: int, *, in_session: bool) -> int:
        """How large the answer may be. 0: it must be empty, now."""
        usage = exchange.usage
        if usage is None:
            return wanted_bytes
        return self._quotas.fetch_bytes(usage, wanted_bytes, self._clock.now_ms(), in_session=in_session)

    def answered(self, exchange: Exchange, body: Sequence[Buffer]) -> Sequence[Buffer]:
        """The answer with its throttle time. It is sent at once, and then the client is muted (KIP-219)."""
        usage, header = exchange.usage, exchange.request.header
        if usage is None:
            return body
        now_ms, key = self._clock.now_ms(), header.api_key
        if key == FETCH:
            self._quotas.fetched(usage, sum(map(len, body)), now_ms)
        elif key in MUTATIONS:
            asked_ms = throttle_time_of(key, header.api_version, body)
            self._quotas.throttled(usage, QuotaKey.CONTROLLER_MUTATION_RATE, asked_ms, now_ms)
        self._quotas.worked(usage, now_ms, self._work_clock())
        throttle_ms = usage.throttle_ms(now_ms)
        if not throttle_ms:
            return body
        exchange.mute(usage.throttled_until_ms)
        return with_throttle_time(key, header.api_version, body, throttle_ms)


class Mute:
    """The time in which one connection is not read, because its client is over a quota."""

    __slots__ = ("_ended", "_timer", "_until_ms")

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None
        self._until_ms = 0

    def extend(self, until_ms: int, now_ms: int) -> None:
        """Never shortens it."""
        if until_ms <= self._until_ms:
            return
        self.cancel()
        self._until_ms = until_ms
        delay_s = (max(0, until_ms - now_ms) + 1) / 1_000  # now_ms is rounded down
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ended)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
