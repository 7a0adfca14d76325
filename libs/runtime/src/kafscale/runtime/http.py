"""A small HTTP server, and that of a service: /livez (the event loop runs), /readyz (the process is ready), /metrics.

It reads a request of up to 8 KiB within five seconds, answers it, and closes the connection. Probes and scrapers need
no more, and importing a web framework would cost every service a third of a second and 25 MB.

Laws: a slow client never delays the answer to another. Beyond CONNECTIONS_MAX the server closes the oldest connection.
A probe sends its request at once, so it has been answered by then. If a probe failed because all connections were
taken, a healthy service would be restarted. Scrapers share one text (`Scrapes`). A client that leaves before its
answer is no event for the log. /readyz and /metrics name topics and groups, so a request whose Host is a name that
anybody could register is refused: a web site could point such a name here and read them through a browser (DNS
rebinding).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, Generic, TypeVar

import structlog
from kafscale.runtime.addresses import join_address, split_address
from kafscale.runtime.clock import Clock, LoopWatch
from kafscale.runtime.health import Health
from kafscale.runtime.metrics import Metrics, Reading

log = structlog.get_logger("kafscale.http")

OWN: Final = "main"
PLAIN: Final = "text/plain; charset=utf-8"
EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_BYTES_MAX: Final = 8 << 10
REQUEST_TIMEOUT_S: Final = 5.0
CONNECTIONS_MAX: Final = 64
REST_FACTOR: Final = 9
REST_S_MAX: Final = 1.0

PRIVATE_DOMAINS: Final = (".local", ".internal", ".svc", ".localhost", ".home.arpa")
"""Of cluster DNS and of private networks. Nobody can register a name below them."""

WorkerMetrics = Callable[[], Awaitable[Mapping[str, bytes]]]
Answer = tuple[HTTPStatus, str, bytes]
T = TypeVar("T")


class HttpServer(ABC):
    """Reads one request of each connection, and closes the connection after the answer."""

    def __init__(self) -> None:
        self._open: dict[asyncio.StreamWriter, None] = {}  # in order of arrival

    @abstractmethod
    async def respond(self, head: bytes) -> bytes:
        """The whole response to the request's head, in less than REQUEST_TIMEOUT_S."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        self._make_room()
        self._open[writer] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                answer = await self.respond(head)
                if not writer.is_closing():  # uvloop raises RuntimeError for a closed one
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            return  # the client left, is too slow, or does not speak HTTP
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _make_room(self) -> None:
        while len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()


def rest_s(took_s: float) -> float:
    """The pause after a text that took this long."""
    return min(REST_FACTOR * took_s, REST_S_MAX)


class Scrapes(Generic[T]):
    """Makes the text of /metrics for many scrapers at the price of one.

    Laws: one text is made at a time, and all scrapers that wait share it. After a text that took `t`, the next one
    waits for 9 t, at most REST_S_MAX, so texts take a tenth of the process at most. A text is never older than its
    request.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._begun = 0
        self._made: tuple[int, T] | None = None
        self._rest_until_s = 0.0

    async def newest(self) -> T:
        """What was made after this call. Raises what `make` raises."""
        asked_after = self._begun
        async with self._turn:
            if self._made is not None and self._made[0] > asked_after:
                return self._made[1]
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._rest_until_s - loop.time()))
            self._begun += 1
            began_s, number = loop.time(), self._begun
            try:
                made = await self._make()
            finally:
                self._rest_until_s = loop.time() + rest_s(loop.time() - began_s)
            self._made = number, made
            return made


class HttpFace(HttpServer):
    def __init__(self, *, health: Health, watch: LoopWatch, clock: Clock, metrics: Metrics) -> None:
        super().__init__()
        self._health = health
        self._watch = watch
        self._clock = clock
        self._metrics = metrics
        self._scrapes = Scrapes(self._exposed)
        self.worker_metrics: WorkerMetrics | None = None
        self.names: frozenset[str] = frozenset()
        """By which others find this process, besides its addresses."""

    async def respond(self, head: bytes) -> bytes:
        method, path = request_line(head)
        if not path.startswith("/livez") and not is_ours(header_values(head, "host"), self.names):
            why = b"the Host must be an address of this process, or the name that it advertises\n"
            return response(head, (HTTPStatus.FORBIDDEN, PLAIN, why))
        return response(head, await self.answer(method, path))

    async def answer(self, method: str, path: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, PLAIN, b"GET only\n"
        match path.partition("?")[0]:
            case "/livez":
                return self._livez()
            case "/readyz":
                status = HTTPStatus.OK if self._health.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
                return status, PLAIN, self._health.reason.encode() + b"\n"
            case "/metrics":
                return await self._metrics_answer()
            case _:
                return HTTPStatus.NOT_FOUND, PLAIN, b"/livez, /readyz or /metrics\n"

    def _livez(self) -> Answer:
        if self._watch.alive(self._clock.now_ms()):
            return HTTPStatus.OK, PLAIN, b"ok\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, b"the event loop is blocked\n"

    async def _metrics_answer(self) -> Answer:
        """A bug in one metric is a status 500; the service must not look dead."""
        try:
            text = await self._scrapes.newest()
        except Exception:
            log.exception("metrics failed")
            return HTTPStatus.INTERNAL_SERVER_ERROR, PLAIN, b"metrics cannot be read: see the log\n"
        return HTTPStatus.OK, EXPOSITION, text

    async def _exposed(self) -> bytes:
        others = None if self.worker_metrics is None else await self.worker_metrics()
        return await asyncio.to_thread(exposition, self._metrics.read(), others)


def exposition(readings: Sequence[Reading], others: Mapping[str, bytes] | None) -> bytes:
    """Runs in a thread, which imports Prometheus at the first scrape: a service starts without it."""
    from kafscale.runtime.exposition import expose, merge_expositions

    text = expose(readings)
    return text if others is None else merge_expositions({OWN: text, **others})


def request_line(head: bytes) -> tuple[str, str]:
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    return method, rest.partition(" ")[0]


def header(head: bytes, name: str) -> str | None:
    """The value of the request's only header of that name; None if there is none, or more than one."""
    found = header_values(head, name)
    return found[0] if len(found) == 1 else None


def header_values(head: bytes, name: str) -> list[str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    split = (line.partition(":") for line in lines)
    return [value.strip() for key, _, value in split if key.strip().lower() == name]


def is_ours(hosts: Sequence[str], names: Collection[str]) -> bool:
    """Whether a request with these Host headers was sent to this process, and not to a name of somebody else.

    A browser always sends one. An address, a name without a dot and a name below PRIVATE_DOMAINS are no names that
    somebody could register and point here.
    """
    if not hosts:
        return True
    host = hosts[0].lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    with suppress(ValueError):
        return len(hosts) == 1 and bool(ip_address(name))
    private = "." not in name or name.endswith(PRIVATE_DOMAINS)
    return len(hosts) == 1 and bool(name) and (private or name in names)


def response(head: bytes, answer: Answer, headers: Sequence[str] = ()) -> bytes:
    """`headers` are whole lines."""
    status, content_type, body = answer
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    )
    return "\r\n".join((*lines, "", "")).encode() + (b"" if head.startswith(b"HEAD ") else body)


@asynccontextmanager
async def serving(http: HttpServer, address: str) -> AsyncIterator[str]:
    """Yields the address that it listens on. Raises OSError if it cannot listen."""
    host, port = split_address(address)
    server = await asyncio.start_server(http.serve, host, port, limit=REQUEST_BYTES_MAX)
    try:
        bound_host, bound_port = server.sockets[0].getsockname()[:2]
        yield join_address(bound_host, bound_port)
    finally:
        server.close()
