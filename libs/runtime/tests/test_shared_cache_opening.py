"""Opening connections to redis: what goes wrong there is the cache's failure, and nobody else waits for it."""

import asyncio
import socket
import threading
from typing import Any

import pytest
from kafscale.runtime.shared_cache import redis_client
from kafscale.runtime.shared_cache.port import CacheUnavailable
from kafscale.runtime.shared_cache.redis_client import CONNECTIONS_MAX, RedisClient
from kafscale.testkit.proxy import FaultProxy, Way
from kafscale.testkit.redis import RedisServer

PATIENT_MS = 10_000


async def test_a_connection_that_was_not_let_in_is_not_used(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_client, "OPENING_TIMEOUT_S", 0.2)
    redis_server.client.config_set("requirepass", "right")
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        client = RedisClient(f"redis://:right@{proxy.address}")
        proxy.silence(Way.DOWN)
        with pytest.raises(CacheUnavailable, match="TimeoutError"):
            await client.get("key")
        proxy.heal()
        monkeypatch.setattr(redis_client, "OPENING_TIMEOUT_S", PATIENT_MS / 1000)
        await client.set("key", b"value", ttl_ms=60_000)
        await client.close()


async def test_a_name_server_that_hangs_is_asked_once_and_holds_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    over = threading.Event()

    def look_up(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != "redis.away":
            return real(host, *args, **kwargs)
        asked.append(host)
        over.wait(PATIENT_MS / 1000)
        raise socket.gaierror(socket.EAI_AGAIN, "nobody answers")

    async def call() -> None:
        async with asyncio.timeout(0.01):
            await client.get("key")

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    client = RedisClient("redis://redis.away:6379")
    for _ in range(3):
        outcomes = await asyncio.gather(*(call() for _ in range(CONNECTIONS_MAX)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TimeoutError}
    found = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
    assert found
    assert asked == ["redis.away"]
    over.set()
    await client.close()


class Raising:
    """A transport that says RuntimeError, as uvloop's do when the server hung up at once."""

    is_connected = False

    async def connect(self) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>")

    async def disconnect(self, nowait: bool = False) -> None:
        return None


async def test_whatever_a_transport_raises_is_a_failure_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    client = RedisClient("redis://127.0.0.1:1")
    monkeypatch.setattr(client, "_closed", [Raising()])
    with pytest.raises(CacheUnavailable, match="RuntimeError"):
        await client.get("key")
