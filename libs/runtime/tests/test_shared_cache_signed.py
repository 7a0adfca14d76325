"""A redis that somebody else can write to: what that one puts there is never served, and costs nothing but a miss."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.ports import free_port
from kafscale.runtime.settings import MIB, ServiceSettings
from kafscale.runtime.settings_load import BadSettings, read_settings
from kafscale.runtime.shared_cache import BadRedisUrl, CacheUnusable, SharedCache, open_shared_cache
from kafscale.runtime.shared_cache.breaker import CacheUnavailable
from kafscale.runtime.shared_cache.entries import ObjectName, entry_key, sealed
from kafscale.runtime.shared_cache.redis_client import RedisClient
from kafscale.runtime.shared_cache.signed_entries import (
    HEAD_SIZE,
    INLINE_BYTES_MAX,
    PIECE_BYTES,
    PREFIX,
    SignedEntries,
)
from kafscale.testkit.authority import Authority
from kafscale.testkit.redis import RedisServer
from kafscale.wire.buffers import Buffer
from shared_cache_harness import ETAG, KEY, OBJECT, PATIENT_MS, Bench, running, until
from structlog.testing import capture_logs

OURS, NEXT, STRANGE = (bytes([n]) * 32 for n in (1, 2, 3))
NAME = ObjectName(KEY, ETAG)
ENTRIES = SignedEntries([OURS])
BUNDLE = bytes(range(256)) * 1024
START, END = PIECE_BYTES - 100, PIECE_BYTES + 100
"""A slice in two of the bundle's four pieces."""


async def fill_bundle(bench: Bench) -> None:
    fill = bench.cache.prepare(KEY, ETAG, (BUNDLE[:1_000], BUNDLE[1_000:]), in_ranges=True)
    assert fill is not None
    bench.cache.submit(fill)
    await until(lambda: bench.budget.used_bytes == 0)


async def test_a_segment_and_a_slice_are_found_by_another_holder_of_the_key(
    redis_server: RedisServer,
) -> None:
    async with (
        running(redis_server.url, entries=ENTRIES) as one,
        running(redis_server.url, entries=SignedEntries([OURS])) as other,
    ):
        assert await other.get() is None
        await one.fill()
        assert await other.get() == OBJECT
        await fill_bundle(one)
        assert await other.cache.get_range(KEY, ETAG, START, END) == BUNDLE[START:END]
        assert (other.metrics.hits.value, other.metrics.misses.value) == (2, 1)
        assert other.metrics.read_bytes.value == len(OBJECT) + END - START
        assert (other.metrics.rejected.value, other.metrics.errors.value) == (0, 0)


def of(entries: SignedEntries, name: ObjectName, data: bytes) -> bytes:
    return entries.sealed(name, [data], in_ranges=True)


def flipped(value: bytes, at: int) -> bytes:
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]


POISONS: dict[str, Callable[[bytes, bytes], bytes]] = {
    "a flipped bit": lambda value, _: flipped(value, HEAD_SIZE + 500),
    "a flipped bit of the head": lambda value, _: flipped(value, 5),
    "of another partition": lambda _, data: of(
        ENTRIES, ObjectName("default/orders/1/segment-1.kfs", ETAG), data
    ),
    "of an older etag": lambda _, data: of(ENTRIES, ObjectName(KEY, "e0"), data),
    "cut short": lambda value, _: value[:-1] if len(value) < PIECE_BYTES else value[: PIECE_BYTES + 100],
    "only a stump": lambda value, _: value[:3],
    "a checksum that is right": lambda _, data: sealed([data]),
    "a MAC of zeros": lambda value, _: value[: HEAD_SIZE - 16] + bytes(16) + value[HEAD_SIZE:],
    "signed by a stranger": lambda _, data: of(SignedEntries([STRANGE]), NAME, data),
}


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
@pytest.mark.parametrize("what", ["a segment", "a slice"])
async def test_a_poisoned_entry_is_a_miss_and_is_deleted(
    redis_server: RedisServer, what: str, poison: Callable[[bytes, bytes], bytes]
) -> None:
    key = ENTRIES.key(NAME)
    async with running(redis_server.url, entries=ENTRIES) as bench:
        data = OBJECT if what == "a segment" else BUNDLE
        await (bench.fill() if what == "a segment" else fill_bundle(bench))
        value = redis_server.client.get(key)
        assert isinstance(value, bytes)
        redis_server.client.set(key, poison(value, data))
        with capture_logs() as logs:
            if what == "a segment":
                assert await bench.get() is None
            else:
                assert await bench.cache.get_range(KEY, ETAG, START, END) is None
        assert redis_server.client.dbsize() == 0
        assert (bench.metrics.rejected.value, bench.metrics.misses.value) == (1, 1)
        assert (bench.metrics.hits.value, bench.metrics.corrupt.value, bench.metrics.errors.value) == (
            0,
            0,
            0,
        )
        [line] = logs
        assert line == {
            "event": "shared cache entry rejected",
            "key": key,
            "why": "no key of this process signed it",
            "log_level": "warning",
        }


async def test_an_entry_far_too_large_is_not_transferred(redis_server: RedisServer) -> None:
    redis_server.client.set(ENTRIES.key(NAME), bytes(64 * MIB))
    async with running(redis_server.url, entries=ENTRIES) as bench:
        before = redis_server.client.info("stats")["total_net_output_bytes"]
        assert await bench.get() is None
        sent = redis_server.client.info("stats")["total_net_output_bytes"] - before
        assert len(OBJECT) <= sent < MIB
        assert bench.metrics.rejected.value == 1


async def test_services_with_and_without_keys_leave_each_others_entries_alone(
    redis_server: RedisServer,
) -> None:
    """As while keys are introduced, one service after another."""
    async with running(redis_server.url) as plain, running(redis_server.url, entries=ENTRIES) as signed:
        await plain.fill()
        assert await signed.get() is None
        await signed.fill()
        assert await plain.get() == await signed.get() == OBJECT
        assert redis_server.client.dbsize() == 2
        assert (signed.metrics.rejected.value, plain.metrics.corrupt.value) == (0, 0)


async def test_keys_are_replaced_without_a_miss(redis_server: RedisServer) -> None:
    """Each step is one restart of all services: they overlap with those of the step before."""
    redis_server.client.set(ENTRIES.key(NAME), ENTRIES.sealed(NAME, [OBJECT], in_ranges=False))
    steps = [[OURS], [OURS, NEXT], [NEXT, OURS], [NEXT]]
    for before, after in pairwise(steps):
        async with (
            running(redis_server.url, entries=SignedEntries(before)) as old,
            running(redis_server.url, entries=SignedEntries(after)) as new,
        ):
            assert await new.get() == OBJECT
            for writer, reader in ((old, new), (new, old)):
                await writer.fill()
                assert await reader.get() == OBJECT
            assert (old.metrics.rejected.value, new.metrics.rejected.value) == (0, 0)


class Witness(SignedEntries):
    """Notes the threads in which it works."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        super().__init__(keys)
        self.threads: list[threading.Thread] = []

    def sealed(self, name: ObjectName, parts: Sequence[Buffer], *, in_ranges: bool) -> bytes:
        self.threads.append(threading.current_thread())
        return super().sealed(name, parts, in_ranges=in_ranges)

    def opened(self, name: ObjectName, value: bytes, size: int) -> memoryview | None:
        self.threads.append(threading.current_thread())
        return super().opened(name, value, size)

    def opened_range(self, name: ObjectName, found: bytes, start: int, end: int) -> bytes | None:
        self.threads.append(threading.current_thread())
        return super().opened_range(name, found, start, end)


@pytest.mark.parametrize(("size", "inline"), [(INLINE_BYTES_MAX, True), (INLINE_BYTES_MAX + 1, False)])
async def test_long_work_is_not_done_on_the_event_loop(
    redis_server: RedisServer, size: int, inline: bool
) -> None:
    witness, data = Witness([OURS]), bytes(size)
    async with running(redis_server.url, entries=witness) as bench:
        await bench.fill(data)
        assert await bench.get(data) == data
        fill = bench.cache.prepare("bundle", ETAG, (data,), in_ranges=True)
        assert fill is not None
        bench.cache.submit(fill)
        await until(lambda: bench.budget.used_bytes == 0)
        assert await bench.cache.get_range("bundle", ETAG, 0, size) == data
        assert await bench.cache.get_range("bundle", ETAG, 0, 10) == data[:10]
    here = threading.current_thread()
    *large, small = [thread is here for thread in witness.threads]
    assert (large, small) == ([inline] * 4, True)


# -- settings, password, TLS ----------------------------------------------------------------------------


def cache_of(settings: ServiceSettings, tasks: asyncio.TaskGroup) -> SharedCache | None:
    return open_shared_cache(
        settings, clock=SystemClock(), budget=MemoryBudget(MIB), metrics=Metrics("fetch"), tasks=tasks
    )


@asynccontextmanager
async def opened(settings: ServiceSettings) -> AsyncIterator[SharedCache]:
    async with asyncio.TaskGroup() as tasks:
        cache = cache_of(settings, tasks)
        assert cache is not None
        yield cache
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def test_a_service_with_a_key_file_writes_and_reads_signed_entries(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{OURS.hex()}\n")
    given = {"redis_url": redis_server.url, "redis_mac_key_file": file, "redis_timeout_ms": PATIENT_MS}
    async with opened(read_settings(ServiceSettings, given)) as cache:
        cache.fill(KEY, ETAG, (OBJECT,))
        await until(lambda: redis_server.client.dbsize() == 1)
        assert redis_server.client.get(f"{PREFIX}{KEY}:{ETAG}") == ENTRIES.sealed(
            NAME, [OBJECT], in_ranges=False
        )
        redis_server.client.set(entry_key(KEY, "another"), sealed([OBJECT]))
        assert await cache.get(KEY, "another", len(OBJECT)) is None
        assert await cache.get(KEY, ETAG, len(OBJECT)) == OBJECT


async def test_a_service_whose_secrets_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as tasks:
        for setting in ("redis_mac_key_file", "redis_password_file"):
            given = {"redis_url": "redis://127.0.0.1:1", setting: tmp_path / "absent"}
            with pytest.raises(CacheUnusable, match=rf"absent \(KAFSCALE_{setting.upper()}\): No such file"):
                cache_of(read_settings(ServiceSettings, given), tasks)


async def test_without_a_redis_no_file_is_read(tmp_path: Path) -> None:
    settings = read_settings(ServiceSettings, {"redis_mac_key_file": tmp_path / "absent"})
    async with asyncio.TaskGroup() as tasks:
        assert cache_of(settings, tasks) is None


@pytest.mark.parametrize("url", ["redis://:hush@host:6379", "redis://host:6379?password=hush"])
def test_a_password_comes_from_one_place(url: str) -> None:
    with pytest.raises(BadSettings, match="exclude each other") as refused:
        read_settings(ServiceSettings, {"redis_url": url, "redis_password_file": "/run/password"})
    assert "hush" not in str(refused.value)


async def test_an_option_whose_value_redis_py_does_not_take_is_refused_in_a_sentence() -> None:
    settings = read_settings(ServiceSettings, {"redis_url": "rediss://:hush@host:6379?ssl_cert_reqs=perhaps"})
    async with asyncio.TaskGroup() as tasks:
        with pytest.raises(BadRedisUrl):
            cache_of(settings, tasks)


async def test_the_user_of_the_docs_with_a_password_from_a_file_may_do_all_that_a_service_does(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    rules = ["reset", "on", ">hush", "~kafscale:*", "+get", "+getrange", "+set", "+del"]
    redis_server.client.execute_command("ACL", "SETUSER", "kafscale", *rules)
    redis_server.client.execute_command("ACL", "SETUSER", "default", "-@all", "+acl", "+dbsize")
    (tmp_path / "password").write_text("hush\n")
    (tmp_path / "keys").write_text(OURS.hex())
    given = {
        "redis_url": f"redis://kafscale@127.0.0.1:{redis_server.port}",
        "redis_password_file": tmp_path / "password",
        "redis_mac_key_file": tmp_path / "keys",
        "redis_timeout_ms": PATIENT_MS,
    }
    async with opened(read_settings(ServiceSettings, given)) as cache:
        cache.fill(KEY, ETAG, (OBJECT,))
        await until(lambda: redis_server.client.dbsize() == 1)
        assert await cache.get(KEY, ETAG, len(OBJECT)) == OBJECT
        await cache.discard(KEY, ETAG)
        assert redis_server.client.dbsize() == 0


@contextmanager
def redis_over_tls(folder: Path, authority: Authority, name: str, *options: str) -> Iterator[str]:
    """The URL of a redis whose certificate is for `name`."""
    files, port = authority.issue(name), free_port()
    shown = ("--tls-cert-file", str(files.certificate), "--tls-key-file", str(files.key))
    server = RedisServer(
        folder, ("--tls-port", str(port), *shown, "--tls-ca-cert-file", str(authority.ca), *options)
    )
    server.start()
    try:
        yield f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority.ca}"
    finally:
        server.client.close()
        server.kill()


async def test_a_redis_that_asks_for_certificates_lets_in_who_has_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    with redis_over_tls(tmp_path / "redis", authority, "127.0.0.1") as url:
        ours = authority.role("fetch")
        client = RedisClient(f"{url}&ssl_certfile={ours.certificate}&ssl_keyfile={ours.key}")
        await client.set("key", b"value", ttl_ms=60_000)
        assert await client.get("key") == b"value"
        await client.close()
        stranger = RedisClient(url)
        with pytest.raises(CacheUnavailable):
            await stranger.get("key")
        await stranger.close()


async def test_a_certificate_for_another_name_is_not_taken(tmp_path: Path) -> None:
    options = ("--tls-auth-clients", "no")
    with redis_over_tls(tmp_path / "redis", Authority(tmp_path / "ca"), "another.example", *options) as url:
        client = RedisClient(url)
        with pytest.raises(CacheUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.get("key")
        await client.close()
