"""The shared cache's server is redis. The one module that imports redis-py, and is itself imported only when it is on.

The connections are ours and not those of redis-py's pool: a call is cancelled at its deadline, and that
pool may lose a connection for good when that happens while it takes one back.

They are opened one at a time, and no call's deadline ends that: a look at DNS or a handshake may last longer than any
call is worth, and one that is given up goes on in a thread. Calls given up by the dozen would take every thread that
this process looks names up with, those of the object store among them.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Final

from kafscale.runtime.shared_cache.cache import CacheUnavailable
from redis.asyncio import Connection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as HungUp

CONNECTIONS_MAX: Final = 16
OPENING_TIMEOUT_S: Final = 10


class RedisClient:
    """Made without I/O: a connection is opened by the first call that needs it. For one event loop."""

    def __init__(self, url: str) -> None:
        """Raises ValueError or TypeError for a URL, or options in it, that redis-py does not take."""
        pool = ConnectionPool.from_url(
            url,
            protocol=2,
            driver_info=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )
        make: Callable[[], Connection] = pool.make_connection
        self._closed = [make() for _ in range(CONNECTIONS_MAX)]
        self._idle: list[Connection] = []
        self._line = asyncio.Semaphore(CONNECTIONS_MAX)
        self._opening: asyncio.Task[None] | None = None

    async def get(self, key: str) -> bytes | None:
        reply = await self._call("GET", key)
        if reply is not None and not isinstance(reply, bytes):
            raise CacheUnavailable(f"GET answered {type(reply).__name__}")
        return reply

    async def set(self, key: str, value: bytes, *, ttl_ms: int) -> None:
        await self._call("SET", key, value, "PX", ttl_ms)

    async def delete(self, key: str) -> None:
        await self._call("DEL", key)

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self._hang_up()

    async def _call(self, *command: str | bytes | int) -> object:
        try:
            async with self._line:
                return await self._ask(command)
        except HungUp as error:
            await self._hang_up()  # a server that went has left them all
            raise CacheUnavailable(str(error)) from error
        except Exception as error:
            raise CacheUnavailable(f"{type(error).__name__}: {error}") from error

    async def _ask(self, command: tuple[str | bytes | int, ...]) -> object:
        """A connection hangs up by itself when it is cancelled or fails before the whole answer is read."""
        while not self._idle:
            # Never a task that has ended: such an await does not suspend, and the event loop would never turn again.
            await asyncio.shield(self._opened())
        connection = self._idle.pop()
        try:
            await connection.send_command(*command, check_health=False)
            reply: object = await connection.read_response(disconnect_on_error=True)
            return reply
        finally:
            self._put_back(connection)

    def _put_back(self, connection: Connection) -> None:
        (self._idle if connection.is_connected else self._closed).append(connection)

    async def _hang_up(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            self._closed.append(connection)
            await connection.disconnect(nowait=True)

    # -- opening -------------------------------------------------------------------------------------

    def _opened(self) -> asyncio.Task[None]:
        """One more connection, for whoever is first; the callers that wait share it. The line leaves one closed."""
        if self._opening is None:
            opening = self._open(self._closed.pop())
            self._opening = asyncio.get_running_loop().create_task(opening, context=Context())
            self._opening.add_done_callback(_look_at)
        return self._opening

    async def _open(self, connection: Connection) -> None:
        """Forgotten by its own last step and not by a callback, which would run a pass of the event loop later."""
        try:
            async with asyncio.timeout(OPENING_TIMEOUT_S):
                await connection.connect()  # type: ignore[no-untyped-call]
        finally:
            self._put_back(connection)
            self._opening = None


def _look_at(opening: asyncio.Task[None]) -> None:
    """An exception that every caller has left behind is no surprise to report."""
    if not opening.cancelled():
        opening.exception()
