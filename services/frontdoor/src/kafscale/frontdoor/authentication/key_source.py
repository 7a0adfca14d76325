"""The issuer's keys (JWKS), from an https URL or a file: fetched in a thread, kept, and renewed.

Laws: the address is a setting; nothing that a client sends chooses it, and a redirect is not followed. A fetch has a
deadline and a bound on its size. The last good keys are kept until newer ones are read. A token with an unknown key
causes at most one fetch per `RENEW_EVERY_MS`, and waits for the one that is under way.
"""

import asyncio
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import IO, Final

import structlog
from kafscale.frontdoor.authentication.key_url import parse_keys_url
from kafscale.frontdoor.authentication.tokens import KeySet, KeysWrong, parse_keys
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Level

log = structlog.get_logger("kafscale.frontdoor.keys")

FETCH_S_MAX: Final = 5.0
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


def fetcher(url: str, tls: ssl.SSLContext | None = None) -> Fetch:
    """Reads the document at the URL. `tls`: the authorities to trust; None: those of the system. Raises UrlWrong."""
    place = parse_keys_url(url)
    if isinstance(place, Path):
        return lambda: _bounded(place.open("rb"))
    context = tls or ssl.create_default_context()
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())
    return lambda: _bounded(opener.open(place, timeout=FETCH_S_MAX))


def _bounded(stream: IO[bytes]) -> bytes:
    """The timeout of a socket is one of each read: a server that drips must not hold the thread."""
    until_s = time.monotonic() + FETCH_S_MAX
    document = b""
    with stream:
        while chunk := stream.read(CHUNK_BYTES):
            document += chunk
            if len(document) > DOCUMENT_BYTES_MAX:
                raise KeysWrong(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
            if time.monotonic() > until_s:
                raise KeysWrong(f"the document did not come within {FETCH_S_MAX:.0f} s")
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

    async def _read(self, now_ms: int) -> None:
        try:
            document = await asyncio.get_running_loop().run_in_executor(self._threads, self._fetch)
            self.keys = parse_keys(document)
            self._read_ms = now_ms
            self._read_at.set(self._clock.wall_ms() / 1000)
        except (KeysWrong, OSError, http.client.HTTPException) as error:
            log.warning("keys of OAUTHBEARER not read", reason=_plain(error), has_keys=self.keys is not None)
        finally:
            self._fetching = None


def _plain(error: Exception) -> str:
    """urllib's own words contain no more than the address, which is a setting."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP status {error.code}"
    return str(error)
