"""The Redis client of the shared cache. The only module that imports redis-py; it is imported only if the cache is on.

It manages its connections itself: a call is cancelled at its deadline, and redis-py's pool may lose a connection for
good if it is cancelled while it takes one back.

Connections are opened one at a time, and a call's deadline does not cancel that. A DNS lookup or a handshake may take
longer than a call, and a cancelled lookup goes on in its thread. Many cancelled lookups would take all threads that
this process uses for DNS, including those of the object store.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Final

from kafscale.runtime.shared_cache.breaker import CacheUnavailable
from redis.asyncio import Connection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as HungUp
from redis.exceptions import RedisError

CONNECTIONS_MAX: Final = 16
OPENING_TIMEOUT_S: Final = 10


class RedisClient:
    """For one event loop. The constructor does no I/O: the first call that needs a connection opens it.

    A call has no deadline; the caller sets one. Each raises CacheUnavailable.
    """

    def __init__(self, url: str, password: str | None = None) -> None:
        """`password`: for a URL without one. Raises ValueError or TypeError if redis-py does not accept the URL or its
        options."""
        pool = ConnectionPool.from_url(
            url,
            protocol=2,
            driver_info=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
            **({} if password is None else {"password": password}),
        )
        make: Callable[[], Connection] = pool.make_connection
        try:
            self._closed = [make() for _ in range(CONNECTIONS_MAX)]
        except RedisError as error:
            raise ValueError(str(error)) from error
        self._idle: list[Connection] = []
        self._line = asyncio.Semaphore(CONNECTIONS_MAX)
        self._opening: asyncio.Task[None] | None = None

    async def get(self, key: str) -> bytes | None:
        reply = await self._call("GET", key)
        if reply is not None and not isinstance(reply, bytes):
            raise CacheUnavailable(f"GET answered {type(reply).__name__}")
        return reply

    async def get_range(self, key: str, first: int, last: int) -> bytes:
        """Both included; what the value lacks is missing from the answer."""
        reply = await self._call("GETRANGE", key, first, last)
        if not isinstance(reply, bytes):
            raise CacheUnavailable(f"GETRANGE answered {type(reply).__name__}")
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
            await self._hang_up()  # a server that closed one connection has closed all of them
            raise CacheUnavailable(str(error)) from error
        except Exception as error:
            raise CacheUnavailable(f"{type(error).__name__}: {error}") from error

    async def _ask(self, command: tuple[str | bytes | int, ...]) -> object:
        """A connection closes itself if it is cancelled or fails before the whole answer is read."""
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
        """Opens one more connection; all waiting callers share this task. The semaphore guarantees that one is
        closed."""
        if self._opening is None:
            opening = self._open(self._closed.pop())
            self._opening = asyncio.get_running_loop().create_task(opening, context=Context())
            self._opening.add_done_callback(_look_at)
        return self._opening

    async def _open(self, connection: Connection) -> None:
        """The last step clears `_opening`; a callback would do so one iteration of the event loop later."""
        try:
            async with asyncio.timeout(OPENING_TIMEOUT_S):
                await connection.connect()  # type: ignore[no-untyped-call]
        finally:
            self._put_back(connection)
            self._opening = None


def _look_at(opening: asyncio.Task[None]) -> None:
    """Retrieves the exception, so that asyncio does not report it if every caller was cancelled."""
    if not opening.cancelled():
        opening.exception()
