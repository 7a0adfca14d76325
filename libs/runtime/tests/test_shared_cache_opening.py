"""Opening connections to redis: what goes wrong there is the cache's failure, and nobody else waits for it."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafscale.runtime.addresses import check_redis_url
from kafscale.runtime.ports import free_port
from kafscale.runtime.shared_cache import redis_client
from kafscale.runtime.shared_cache.breaker import CacheUnavailable
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


@pytest.fixture
def tls_redis(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL of a redis that speaks TLS, and the certificate that it shows, which nobody has signed."""
    key, certificate, port = tmp_path / "key.pem", tmp_path / "certificate.pem", free_port()
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=redis")
    files = ("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate))
    subprocess.run((*made, *files), check=True, capture_output=True)
    tls = (
        "--tls-cert-file",
        str(certificate),
        "--tls-key-file",
        str(key),
        "--tls-ca-cert-file",
        str(certificate),
    )
    server = RedisServer(tmp_path / "redis", ("--tls-port", str(port), "--tls-auth-clients", "no", *tls))
    server.start()
    yield f"rediss://127.0.0.1:{port}", certificate
    server.client.close()
    server.kill()


async def test_over_tls_the_server_is_who_an_authority_says(tls_redis: tuple[str, Path]) -> None:
    url, trusted = tls_redis
    client = RedisClient(f"{check_redis_url(url)}?ssl_ca_certs={trusted}")
    await client.set("key", b"value", ttl_ms=60_000)
    assert await client.get("key") == b"value"
    await client.close()
    stranger = RedisClient(url)
    with pytest.raises(CacheUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await stranger.get("key")
    await stranger.close()


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


class Momentary:
    """Opens in one step. What `arrivals` starts then is in the event loop's queue before the callbacks of the task."""

    def __init__(self, arrivals: Callable[[], None]) -> None:
        self.is_connected = False
        self._arrivals = arrivals

    async def connect(self) -> None:
        await asyncio.sleep(0)
        self.is_connected = True
        self._arrivals()

    async def send_command(self, *command: object, check_health: bool) -> None:
        await asyncio.sleep(0)

    async def read_response(self, *, disconnect_on_error: bool) -> bytes:
        await asyncio.sleep(0)
        return b"OK"

    async def disconnect(self, nowait: bool = False) -> None:
        self.is_connected = False


LATE_CALLERS = """
import asyncio
from test_shared_cache_opening import Momentary
from kafscale.runtime.shared_cache.redis_client import CONNECTIONS_MAX, RedisClient

async def main():
    tasks, loop = [], asyncio.get_running_loop()
    def arrive():
        if len(tasks) < 3:
            tasks.extend(loop.create_task(client.get("late")) for _ in range(3))
    client = RedisClient("redis://127.0.0.1:1")
    client._closed = [Momentary(arrive) for _ in range(CONNECTIONS_MAX)]
    await client.get("first")
    print(await asyncio.gather(*tasks))

asyncio.run(main())
"""


def test_a_caller_in_the_instant_in_which_an_opening_ends_does_not_keep_the_event_loop() -> None:
    """In a process of its own: an event loop that never turns cannot be timed out from within."""
    done = subprocess.run(
        [sys.executable, "-c", LATE_CALLERS],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.count("b'OK'") == 3
