"""The issuer's keys (JWKS), from an https URL or a file: fetched in a thread, kept, and renewed.

Laws: the address is a setting; nothing that a client sends chooses it, and a redirect is not followed. A fetch has one
deadline for all of it, and a bound on its size. No document and no server ends the process. The last good keys are kept
until newer ones are read. A token with an unknown key causes at most one fetch per `RENEW_EVERY_MS`, and waits for the
one that is under way.
"""

import asyncio
import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import structlog
from kafscale.frontdoor.authentication.sasl_settings import parse_keys_url
from kafscale.frontdoor.authentication.tokens import KeySet, KeysWrong, parse_keys
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Level

log = structlog.get_logger("kafscale.frontdoor.keys")

FETCH_S_MAX: Final = 5.0
ATTEMPT_S_MAX: Final = 15.0
"""With the search for the address and the connects to all that were found, which nothing can interrupt."""
DOCUMENT_BYTES_MAX: Final = 1 << 20
CHUNK_BYTES: Final = 64 << 10
REFRESH_MS: Final = 900_000
RETRY_MS: Final = 30_000
RENEW_EVERY_MS: Final = 10_000

Fetch = Callable[[], bytes]
"""Blocking. Raises KeysWrong, OSError or HTTPException."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class _Deadline:
    """Ends what is read from a socket, when the time is over.

    The timeout of a socket is one of each read. A server that sends a byte now and then would hold the thread for days.
    """

    def __init__(self) -> None:
        self._timer = threading.Timer(FETCH_S_MAX, self._end)
        self._timer.daemon = True
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self.over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        """Raises KeysWrong if the time is over: then the document is not whole."""
        self._timer.cancel()
        with self._lock:
            self._socket = None
        if self.over:
            raise KeysWrong(f"the document did not come within {FETCH_S_MAX:.0f} s") from error

    def watch(self, connected: socket.socket) -> None:
        with self._lock:
            self._socket = connected
        if self.over:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self.over = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


class _Https(urllib.request.HTTPSHandler):
    """Its connections are those of one fetch."""

    def __init__(self, context: ssl.SSLContext, deadline: _Deadline) -> None:
        super().__init__(context=context)
        self._tls = context
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, deadline=self._deadline), req, context=self._tls)


class _Connection(http.client.HTTPSConnection):
    def __init__(self, host: str, *, deadline: _Deadline, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, timeout=timeout, context=context)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.watch(self.sock)


def fetcher(url: str, tls: ssl.SSLContext | None = None) -> Fetch:
    """Reads the document at the URL. `tls`: the authorities to trust; None: those of the system. Raises UrlWrong."""
    place = parse_keys_url(url)
    if isinstance(place, Path):
        return lambda: _read_file(place)
    return partial(_read_https, place, tls or ssl.create_default_context())


def _read_file(path: Path) -> bytes:
    with path.open("rb") as stream:
        return _bounded(stream)


def _read_https(url: str, tls: ssl.SSLContext) -> bytes:
    with _Deadline() as deadline:
        opener = urllib.request.build_opener(_Https(tls, deadline), _NoRedirects())
        with opener.open(url, timeout=FETCH_S_MAX) as stream:
            return _bounded(stream)


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _bounded(stream: _Stream) -> bytes:
    document = b""
    while chunk := stream.read(CHUNK_BYTES):
        document += chunk
        if len(document) > DOCUMENT_BYTES_MAX:
            raise KeysWrong(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
    return document


class KeySource:
    def __init__(
        self, fetch: Fetch, *, clock: Clock, tasks: asyncio.TaskGroup, threads: Executor, read_at: Level
    ) -> None:
        """`threads`: one thread is enough, because there is one fetch at a time."""
        self._fetch = fetch
        self._clock = clock
        self._tasks = tasks
        self._threads = threads
        self._read_at = read_at
        self._fetching: asyncio.Task[None] | None = None
        self._tried_ms: int | None = None
        self._read_ms: int | None = None
        self.keys: KeySet | None = None

    async def run(self) -> None:
        """Until cancelled: the first fetch at once, then one each time that the keys are old."""
        while True:
            await self._renew()
            fresh = self._read_ms is not None and self._read_ms == self._tried_ms
            await asyncio.sleep((REFRESH_MS if fresh else RETRY_MS) / 1000)

    async def newer(self) -> KeySet | None:
        """The keys after a fetch, if one is under way or may begin; else those that there are."""
        tried_ms = self._tried_ms
        if (
            self._fetching is not None
            or tried_ms is None
            or self._clock.now_ms() - tried_ms >= RENEW_EVERY_MS
        ):
            await self._renew()
        return self.keys

    async def _renew(self) -> None:
        if self._fetching is None:
            self._tried_ms = self._clock.now_ms()
            self._fetching = self._tasks.create_task(self._read(self._tried_ms))
        await asyncio.shield(self._fetching)

    def _parsed(self) -> KeySet:
        return parse_keys(self._fetch())

    async def _read(self, now_ms: int) -> None:
        try:
            async with asyncio.timeout(ATTEMPT_S_MAX):
                self.keys = await asyncio.get_running_loop().run_in_executor(self._threads, self._parsed)
            self._read_ms = now_ms
            self._read_at.set(self._clock.wall_ms() / 1000)
        except (KeysWrong, OSError, http.client.HTTPException) as error:
            log.warning("keys of OAUTHBEARER not read", reason=_plain(error), has_keys=self.keys is not None)
        except Exception as error:  # noqa: BLE001  (the document is foreign, and must not end the process)
            # Not its message, which may quote the document.
            log.error(
                "keys of OAUTHBEARER not read", reason=type(error).__name__, has_keys=self.keys is not None
            )
        finally:
            self._fetching = None


def _plain(error: Exception) -> str:
    """urllib's own words contain no more than the address, which is a setting."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP status {error.code}"
    return str(error) or type(error).__name__
