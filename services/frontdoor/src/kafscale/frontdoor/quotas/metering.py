"""Measures requests while quotas are set, mutes the connections of clients that exceed them, and holds requests whose
client is still throttled: the shell.

Laws: without a quota for any client nothing is measured, and a request costs one look at `table.limits_clients`.
A request that is held was sent to no service. Requests behind it on its connection wait too, so that none passes it.
All requests that are held may have `held_bytes_max` together, or one may have any size; beyond that the connection is
closed. So the requests of clients over their quota do not take the memory of others.

Throttle times are written into the answers of services, which the front door does not decode otherwise. Most answers
begin with theirs. The generated codec knows which: an empty answer with a certain throttle time is encoded, and begins
with it or not. The others are decoded and encoded again; that happens only to a client that is throttled.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from kafscale.access.quota import QuotaKey, QuotaTable
from kafscale.access.quota_rates import Window
from kafscale.frontdoor.exchange import Caller, Exchange
from kafscale.frontdoor.quotas.client_quotas import THROTTLE_MS_MAX, ClientQuotas, Usage
from kafscale.frontdoor.quotas.usage_page import SharedUsage
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.clock import Clock
from kafscale.storage.system import monotonic_ns
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError
from kafscale.wire.schema import MODULES, module_of

PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
SHARE_S: Final = 0.25
MUTATIONS: Final = frozenset(map(int, (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS)))
"""Admin counts the mutations, and its answers carry the throttle time."""
HELD_SHARE: Final = 1 / 16
"""The share of the front door's memory that requests may have that are held."""
FIELD: Final = "throttle_time_ms"
INT: Final = Struct(">i")
MARK: Final = 0x1A2B3C4D


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
        work_clock: Callable[[], int] = monotonic_ns,
        held_bytes_max: int = 32 << 20,
    ) -> None:
        """`throttled` is called with every throttle time. `shared`: with other processes.
        `work_clock`: nanoseconds, for the work of the front door."""
        self.table = table
        self._held_bytes, self._held_bytes_max = 0, held_bytes_max
        self._holds: set[Hold] | None = set()  # None: the front door ends, and nothing is held any more
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
        """Takes the place of the handler while quotas are set."""
        caller = exchange.caller
        if caller.held is not None:
            exchange.wait()
            caller.held.append((exchange, handle))
            return
        client_id = exchange.request.header.client_id
        usage = self._quotas.begin(caller.principal, client_id, self._work_clock(), caller.dues)
        wait_ms = self._owed_ms(usage, exchange.request.header.api_key)
        if wait_ms and self._holds is not None:
            self._hold(exchange, handle, wait_ms)
        else:
            self._run(exchange, handle, usage)

    def _run(self, exchange: Exchange, handle: Callable[[Exchange], None], usage: Usage) -> None:
        request, exchange.usage = exchange.request, usage
        if request.header.api_key == PRODUCE:
            self._quotas.produced(usage, request.size, self._clock.now_ms())
            if usage.throttled_until_ms:
                exchange.mute(usage.throttled_until_ms)
        exchange.handle(handle)
        usage.end_work(self._work_clock())

    def _owed_ms(self, usage: Usage, api_key: int) -> int:
        """How long the request must wait for the quotas of its client. A Fetch over its quota is answered empty
        instead, so it
        waits only for request_percentage."""
        keys = [QuotaKey.REQUEST_PERCENTAGE]
        if api_key == PRODUCE:
            keys.append(QuotaKey.PRODUCER_BYTE_RATE)
        elif api_key in MUTATIONS:
            keys.append(QuotaKey.CONTROLLER_MUTATION_RATE)
        now_ms = self._clock.now_ms()
        return max(self._quotas.owed_ms(usage, key, now_ms) for key in keys)

    # ---- requests that are held

    def _hold(self, exchange: Exchange, handle: Callable[[Exchange], None], wait_ms: int) -> None:
        assert self._holds is not None
        size = exchange.request.size
        if self._holds and self._held_bytes + size > self._held_bytes_max:
            exchange.turn_away("too many requests wait for throttle times", "throttled", "over its quota")
            return
        exchange.wait()
        wait_ms = min(wait_ms, THROTTLE_MS_MAX)
        exchange.mute(self._clock.now_ms() + wait_ms)
        exchange.caller.held = deque([(exchange, handle)])
        hold = exchange.call = Hold(exchange.caller, size, self._resume, wait_ms)
        self._holds.add(hold)
        self._held_bytes += size

    def _resume(self, hold: "Hold") -> None:
        """The wait is over, or the client has left. Asks again: other requests may have used the quota meanwhile."""
        if self._holds is not None:
            self._holds.discard(hold)
        self._held_bytes -= hold.size
        caller = hold.caller
        held, caller.held = caller.held or (), None
        for exchange, handle in held:
            if exchange.unanswered and not caller.gone:
                exchange.call = None
                exchange.begin(self._clock.now_ms())
                self.run(exchange, handle)

    def release(self) -> None:
        """The front door ends: it sends what it holds, and holds nothing more."""
        holds, self._holds = self._holds or (), None
        for hold in holds:
            hold.end()

    def fetch_bytes(self, exchange: Exchange, wanted_bytes: int) -> int:
        """How large the answer may be. 0: it must be empty, now."""
        usage = exchange.usage
        if usage is None:
            return wanted_bytes
        return self._quotas.fetch_bytes(usage, wanted_bytes, self._clock.now_ms())

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


class Hold:
    """The call of a request that waits for a throttle time. It has no deadline but the end of that time."""

    __slots__ = ("_over", "_timer", "caller", "size")

    def __init__(self, caller: Caller, size: int, over: Callable[["Hold"], None], wait_ms: int) -> None:
        self.caller = caller
        self.size = size
        self._over = over
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, over, self)

    def end(self) -> None:
        self._timer.cancel()
        self._over(self)

    abandon = expire = end


class Mute:
    """The time in which one connection is not read, because its client is over a quota."""

    __slots__ = ("_ended", "_timer", "_until_ms")

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None
        self._until_ms = 0

    def extend(self, until_ms: int, now_ms: int) -> None:
        """Moves the end of the mute, never to an earlier time."""
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


def throttle_time_of(api_key: int, version: int, body: Sequence[Buffer]) -> int:
    """The throttle time of an answer that begins with it; 0 for others."""
    start = b"".join(bytes(memoryview(part)[: INT.size]) for part in body[:2])
    return INT.unpack_from(start)[0] if _begins_with_it(api_key, version) and len(start) >= INT.size else 0


def with_throttle_time(
    api_key: int, version: int, body: Sequence[Buffer], throttle_ms: int
) -> Sequence[Buffer]:
    """The answer with this throttle time, if it is longer than its own. An answer that has no such field stays, and so
    does that of an API that is not served, which has no codec."""
    if api_key not in MODULES:
        return body
    if _begins_with_it(api_key, version):
        if throttle_time_of(api_key, version, body) >= throttle_ms:
            return body
        first = memoryview(body[0])
        if len(first) >= INT.size:
            return [INT.pack(throttle_ms), first[INT.size :], *body[1:]]
    return _encoded_again(api_key, version, body, throttle_ms)


def _encoded_again(api_key: int, version: int, body: Sequence[Buffer], throttle_ms: int) -> Sequence[Buffer]:
    codec = module_of(api_key)
    try:
        answer = codec.decode_response(b"".join(map(bytes, body)), version)
    except WireError:
        return body  # an error in a version that is not served: ApiVersions answers in version 0
    if throttle_ms <= getattr(answer, FIELD, throttle_ms):
        return body
    answer.throttle_time_ms = throttle_ms
    encoded: Sequence[Buffer] = codec.encode_response(answer, version)
    return encoded


@lru_cache(maxsize=1_024)
def _begins_with_it(api_key: int, version: int) -> bool:
    """Whether answers of this API and version begin with the throttle time. A version that is not served has none."""
    codec = module_of(api_key)
    response = getattr(codec, f"{codec.NAME}Response")
    if FIELD not in response.__struct_fields__:
        return False
    try:
        encoded = b"".join(map(bytes, codec.encode_response(response(throttle_time_ms=MARK), version)))
    except WireError:
        return False
    return encoded.startswith(INT.pack(MARK))
