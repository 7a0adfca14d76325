"""What the connections of one process share: dispatch by API, deadlines, memory, flushing.

Laws: every request gets a deadline when it arrives, and a sweep ends those that passed it. Answers of one
turn of the event loop leave in one write per connection. Requests and answers have half of the memory each; memory.py
decides which connections are read, and which are closed when it is full. Each kind of client error is logged at most
once per interval.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import structlog
from kafscale.frontdoor.access import DoorAccess
from kafscale.frontdoor.api import Api
from kafscale.frontdoor.connection import SCRATCH_BYTES, FrameTimeouts, Limits, Request
from kafscale.frontdoor.exchange import NO_ANSWER, Caller, Client, Exchange, end_span, log_request, start_span
from kafscale.frontdoor.fetch_turns import FetchTurns
from kafscale.frontdoor.listeners.connection_limits import (
    UNAUTHENTICATED_MEMORY_SHARE,
    ConnectionLimits,
    UnauthenticatedConnections,
    read_overrides,
)
from kafscale.frontdoor.memory import Holder, RequestMemory, Tide, UnsentAnswers
from kafscale.frontdoor.metrics import FrontdoorMetrics
from kafscale.frontdoor.quotas.metering import Metering
from kafscale.frontdoor.refusals import refuse_exchange
from kafscale.frontdoor.request_order import RequestOrder
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.log_storms import Warnings
from kafscale.runtime.memory_tuning import give_back
from kafscale.runtime.tracing import Tracer
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode, error_name

log = structlog.get_logger("kafscale.frontdoor")

Handler = Callable[[Exchange], None]
SWEEP_S: Final = 0.25
IDLE_ROUNDS: Final = 4
REQUESTS_SHARE: Final = 0.5
FETCH: Final = int(ApiKey.FETCH)
STALE: Final = "access_stale"
"""The reason, in the metric, of connections that were closed because the ACLs are too old."""
TOO_OLD: Final = "the cached ACLs are out of date"
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
SASL_KEYS: Final = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})


def limits_of(settings: FrontdoorSettings) -> Limits:
    return Limits(
        frame_bytes_max=settings.socket_request_max_bytes,
        requests_max=settings.frontdoor_requests_max,
        request_bytes_max=settings.frontdoor_request_bytes_max,
        unsent_bytes_max=settings.frontdoor_unsent_bytes_max,
    )


def request_memory(
    budget: MemoryBudget, settings: FrontdoorSettings, *, with_logins: bool
) -> tuple[RequestMemory, UnauthenticatedConnections[Client]]:
    """The memory of clients, and that of unauthenticated connections, if there are logins."""
    address_share = settings.frontdoor_address_memory_percent / 100
    bytes_max = int(budget.bytes_max * REQUESTS_SHARE)
    unknown_bytes = int(bytes_max * UNAUTHENTICATED_MEMORY_SHARE) if with_logins else 0
    clients = RequestMemory(bytes_max - unknown_bytes, address_share=address_share)
    return clients, UnauthenticatedConnections(unknown_bytes, address_share=address_share)


def connection_limits(settings: FrontdoorSettings) -> ConnectionLimits[Client]:
    overrides = read_overrides(settings.max_connections_per_ip_overrides)
    return ConnectionLimits(settings.max_connections, settings.max_connections_per_ip, overrides)


class Served(NamedTuple):
    """An API and the handler of its requests."""

    api: Api
    handler: Handler
    version_min: int
    version_max: int


class Gateway:
    def __init__(
        self,
        *,
        served: Mapping[int, Served],
        left: Callable[[Caller], None],
        settings: FrontdoorSettings,
        clock: Clock,
        budget: MemoryBudget,
        turns: FetchTurns,
        metering: Metering,
        metrics: FrontdoorMetrics,
        tracer: Tracer | None,
        connection_base: int,
        with_logins: bool = False,
        access: DoorAccess | None = None,
    ) -> None:
        """`served`: by API key. `left` is called when a connection has ended. `with_logins`: of any listener."""
        self._access, self._served, self._left = access, served, left
        self._budget = budget
        self._tracer = tracer
        self._log_requests = settings.log_level == "debug"  # otherwise nothing is built for a line
        self._next_connection = connection_base
        self._dirty: list[Client] = []
        self.metering = metering
        self._turns, self._answers = turns, turns.memory
        self._connection_limits = connection_limits(settings)
        self.alone = frozenset(key for key, one in served.items() if one.api.alone)
        self._may_wait = frozenset(key for key, one in served.items() if one.api.may_wait)
        self.alone_with_logins = self.alone | SASL_KEYS
        self.settings, self.limits = settings, limits_of(settings)
        self.frame_timeouts = FrameTimeouts(frame_ms_max=settings.connections_max_idle_ms)
        self.clock, self.metrics = clock, metrics
        self.warnings = Warnings("kafscale.frontdoor", "connection closed", clock)
        self.requests, self.unauthenticated = request_memory(budget, settings, with_logins=with_logins)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.connections: set[Client] = set()
        self.draining = False
        self._empty: asyncio.Event | None = None

    # ---- connections

    def enter(self, connection: Client, address: str, *, unauthenticated: bool) -> int | None:
        """A number for the connection that no other of this cluster has; None: it must be closed. `unauthenticated`:
        its listener has TLS or SASL."""
        if self.draining:
            self._refuse(connection, "too many connections", "too_many")
            return None
        if self._shuts_out:
            self._refuse(connection, TOO_OLD, STALE)
            return None
        entered, displaced = self._connection_limits.enter(connection, address)
        if displaced is not None:
            displaced.cut_off("connection limit reached, and no request was sent", "displaced")
        if not entered:
            self._refuse(connection, "too many connections", "too_many")
            return None
        if unauthenticated and (oldest := self.unauthenticated.enter(connection, address)) is not None:
            oldest.cut_off("too many connections have not authenticated or sent a request", "displaced")
        self.connections.add(connection)
        self.metrics.accepted.inc()
        self.metrics.connections.set(len(self.connections))
        self._next_connection += 1
        return self._next_connection

    def _refuse(self, connection: Client, kind: str, label: str) -> None:
        self.metrics.hung_up.labels(label).inc()
        self.warnings.log(kind, listener=connection.caller.listener)

    def has_asked(self, connection: Client) -> None:
        """Its first whole request has arrived: the connection now counts as established."""
        self._connection_limits.settled(connection)
        self.unauthenticated.leave(connection)

    def logged_in(self, connection: Client, holder: Holder) -> RequestMemory:
        """Its client has logged in: the connection now counts as established, and its requests use this memory."""
        self.has_asked(connection)
        self.unauthenticated.memory.leave(holder)
        self._sync()
        return self.requests

    @property
    def _shuts_out(self) -> bool:
        return self._access is not None and self._access.shuts_out

    def leave(self, connection: Client, caller: Caller) -> None:
        self.connections.discard(connection)
        self._connection_limits.leave(connection)
        self.unauthenticated.leave(connection)
        self._turns.left(caller)
        self.metrics.connections.set(len(self.connections))
        self._left(caller)
        if self._empty is not None and not self.connections:
            self._empty.set()

    # ---- requests

    def dispatch(self, connection: Client, request: Request) -> None:
        header = request.header
        served = self._served.get(header.api_key)
        if served is None:
            connection.close(*NO_ANSWER, reason=f"API key {header.api_key} is not served")
            return
        api = served.api
        exchange = self._begin(connection, request, api)
        if header.api_key in self._may_wait and len(connection.exchanges) > 1:
            order = exchange.caller.order = exchange.caller.order or RequestOrder()
            if order.holds(exchange, connection.exchanges.values()):
                return
        self._start(exchange, served)

    def start_ready(self, caller: Caller) -> None:
        """Starts the requests that wait for no earlier request any more."""
        for exchange in () if caller.order is None else caller.order.ready():
            if exchange.unanswered:  # one before it may have ended the connection
                exchange.begin(self.clock.now_ms())
                self._start(exchange, self._served[exchange.request.header.api_key])

    def _start(self, exchange: Exchange, served: Served) -> None:
        header = exchange.request.header
        _, handler, version_min, version_max = served
        if not (version_min <= header.api_version <= version_max or header.api_key == API_VERSIONS):
            handler = self._refuse_version
        if self.metering.table.limits_clients or exchange.caller.held is not None:
            self.metering.run(exchange, handler)
        else:
            exchange.handle(handler)

    def begin(self, connection: Client, request: Request) -> Exchange:
        """A request of a login, which answers it itself (`authentication/`)."""
        return self._begin(connection, request, self._served[request.header.api_key].api)

    def _begin(self, connection: Client, request: Request, api: Api) -> Exchange:
        deadline_ms = request.arrived_ms + self.settings.frontdoor_request_timeout_ms
        exchange = Exchange(connection, request, api, deadline_ms)
        connection.exchanges[request.slot] = exchange
        if self._tracer is not None:
            start_span(self._tracer, exchange)
        return exchange

    def _refuse_version(self, exchange: Exchange) -> None:
        """Refuses a version that is not served: with the error in a body of that version, if one can be written."""
        if exchange.request.silent:
            exchange.hang_up(f"{exchange.api.name} v{exchange.version} with acks=0")
            return
        refuse_exchange(exchange, ErrorCode.UNSUPPORTED_VERSION)

    def count(self, exchange: Exchange, out_bytes: int) -> None:
        """An exchange has ended with an answer or with silence."""
        self._give_back(exchange)
        if exchange.caller.order is not None:
            exchange.caller.order.answered(exchange)
        if exchange.request.header.api_key == FETCH:
            self._turns.answered(exchange, out_bytes)
        stats = self.metrics.by_key[exchange.request.header.api_key]
        request = exchange.request
        stats.requests.value += 1
        stats.in_bytes.value += request.size
        stats.out_bytes.value += out_bytes
        duration_ms = self.clock.now_ms() - request.arrived_ms
        stats.seconds.observe(duration_ms / 1000)
        if exchange.error:
            self.metrics.errors.labels(exchange.api.name, error_name(exchange.error)).inc()
        if exchange.span is not None:
            end_span(exchange, "silent" if request.silent else "answered", out_bytes)
        if self._log_requests:
            log_request(exchange, "silent" if request.silent else "answered", duration_ms, out_bytes)

    def forget(self, exchange: Exchange) -> None:
        """The client is gone, or its connection closed, before there was an answer."""
        self._give_back(exchange)
        if exchange.span is not None:
            end_span(exchange, "abandoned", 0)
        if self._log_requests:
            log_request(exchange, "abandoned", self.clock.now_ms() - exchange.request.arrived_ms, 0)

    # ---- writing

    def has_answers(self, connection: Client) -> None:
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._flush)
        self._dirty.append(connection)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    # ---- memory

    def hold(self, memory: RequestMemory, holder: Holder, held_bytes: int, *, under_way: bool) -> None:
        """Notes the bytes that a connection's requests hold now. `memory`: that of clients or that of unauthenticated
        connections."""
        memory.hold(holder, held_bytes, under_way=under_way)
        for victim in memory.victims():
            victim.end()
        self._sync()

    def owe(self, caller: Caller, *, unsent_bytes: int, buffered_bytes: int) -> None:
        """Notes the bytes that wait for a connection's client now."""
        now_ms = self.clock.now_ms()
        self._answers.update(
            caller.unsent, unsent_bytes=unsent_bytes, buffered_bytes=buffered_bytes, now_ms=now_ms
        )
        for victim in self._answers.victims(now_ms):
            victim.end()
        self._sync()

    def admits(self, exchange: Exchange, size: int) -> bool:
        """Reserves room for a part of an answer that has arrived; clients that do not read are closed to make room."""
        for victim in self._answers.victims(self.clock.now_ms(), size):
            victim.end()
        if not exchange.unanswered or not self._answers.take(size):
            self.metrics.dropped_answers.inc()
            return False
        exchange.arriving_bytes += size
        self._sync()
        return True

    def arriving(self, exchange: Exchange, left_bytes: int) -> None:
        """A part of a Fetch answer is in the connection's hands; so many bytes of it are still to come."""
        self._answers.expect(exchange.caller.unsent, left_bytes)
        self._sync()

    def _give_back(self, exchange: Exchange) -> None:
        if exchange.arriving_bytes:
            self._answers.give_back(exchange.arriving_bytes)
            exchange.arriving_bytes = 0
            self._sync()

    def next_fetch(self, caller: Caller) -> None:
        if caller.fetch_turn is not None:  # most producers never fetch
            self._turns.taken(caller)

    def let_go(self, memory: RequestMemory, holder: Holder, unsent: UnsentAnswers) -> None:
        """The connection has ended: releases everything that it held."""
        memory.leave(holder)
        self._answers.leave(unsent)
        self._sync()

    def _sync(self) -> None:
        used_bytes = (
            self.requests.used_bytes + self.unauthenticated.memory.used_bytes + self._answers.used_bytes
        )
        delta_bytes = used_bytes - self._budget.used_bytes
        if delta_bytes > 0:
            self._budget.force(delta_bytes)
        else:
            self._budget.release(-delta_bytes)

    # ---- time

    async def sweep(self) -> None:
        """Until cancelled. Connections with requests are looked at each time, idle ones now and then."""
        rounds = 0
        tide = Tide(self.clock.now_ms())
        while True:
            await asyncio.sleep(SWEEP_S)
            self.metrics.held_bytes.set(self._budget.used_bytes)
            now_ms = self.clock.now_ms()
            if tide.has_fallen(self._budget.used_bytes, now_ms):
                give_back()
            rounds += 1
            everyone = rounds % IDLE_ROUNDS == 0
            if self._shuts_out:
                self._shut_out()
            for connection in tuple(self.connections):
                if everyone or connection.exchanges:
                    connection.sweep(now_ms)

    def _shut_out(self) -> None:
        """Closes all connections. Requests that were allowed are not answered either: the ACLs may have changed
        since."""
        for connection in tuple(self.connections):
            connection.cut_off(TOO_OLD, STALE)

    async def drain(self, timeout_ms: int) -> None:
        """Answers the requests in flight and closes; after the timeout it cuts the rest off."""
        self.draining = True
        self._empty = asyncio.Event()
        self.metering.release()
        for connection in tuple(self.connections):
            connection.drain()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self.connections:
                    await self._empty.wait()
        except TimeoutError:
            log.warning("connections cut off", connections=len(self.connections))
        for connection in tuple(self.connections):
            connection.abort()
