"""The shared cache over a real redis: what it keeps, and that nothing that goes wrong there is an error here."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import MIB, ServiceSettings
from kafscale.runtime.settings_load import BadSettings, read_settings
from kafscale.runtime.shared_cache import BadRedisUrl, SharedCacheLimits, open_shared_cache
from kafscale.runtime.shared_cache import cache as cache_module
from kafscale.runtime.shared_cache.breaker import FAILURES_MAX, BreakerState
from kafscale.runtime.shared_cache.entries import entry_key, sealed, unsealed
from kafscale.runtime.shared_cache.redis_client import CONNECTIONS_MAX, RedisClient
from kafscale.testkit.proxy import FaultProxy, Way
from kafscale.testkit.redis import RedisServer
from shared_cache_harness import ETAG, KEY, OBJECT, PATIENT_MS, running, until


async def test_what_one_instance_puts_there_another_finds(redis_server: RedisServer) -> None:
    async with running(redis_server.url) as one, running(redis_server.url) as other:
        assert await other.get() is None
        await one.fill()
        assert await other.get() == OBJECT
        assert await other.cache.get(KEY, "another etag", len(OBJECT)) is None
        assert (other.metrics.hits.value, other.metrics.misses.value, other.metrics.errors.value) == (1, 2, 0)
        assert one.metrics.fills.value == 1
        assert one.budget.used_bytes == 0


async def test_entries_leave_by_themselves(redis_server: RedisServer) -> None:
    async with running(redis_server.url, ttl_ms=5_000) as bench:
        await bench.fill()
        assert 0 < redis_server.client.pttl(entry_key(KEY, ETAG)) <= 5_000


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: value[:-1],
        lambda value: value[:3],
        lambda value: b"",
        lambda value: value[:500] + bytes([value[500] ^ 1]) + value[501:],
        lambda value: b"KSC0" + value[4:],
        lambda value: sealed([OBJECT + b"more"]),
    ],
    ids=["truncated", "only a stump", "empty", "a flipped bit", "another version", "another object"],
)
async def test_a_damaged_entry_is_a_miss_and_is_deleted(
    redis_server: RedisServer, damage: Callable[[bytes], bytes]
) -> None:
    async with running(redis_server.url) as bench:
        await bench.fill()
        redis_server.client.set(entry_key(KEY, ETAG), damage(sealed([OBJECT])))
        assert await bench.get() is None
        assert redis_server.client.dbsize() == 0
        assert (bench.metrics.corrupt.value, bench.metrics.errors.value) == (1, 0)


async def test_a_value_of_another_type_is_a_failure_and_no_error(redis_server: RedisServer) -> None:
    redis_server.client.rpush(entry_key(KEY, ETAG), "a list")
    async with running(redis_server.url) as bench:
        assert await bench.get() is None
        assert bench.metrics.errors.value == 1


async def test_a_late_answer_is_a_miss_and_its_connection_is_not_used_again(
    redis_server: RedisServer,
) -> None:
    other = b"x" * len(OBJECT)
    async with (
        FaultProxy("127.0.0.1", redis_server.port) as proxy,
        running(f"redis://{proxy.address}", timeout_ms=2_000) as bench,
    ):
        await bench.fill()
        opened = proxy.accepted
        proxy.silence(Way.DOWN)
        assert await bench.get() is None
        assert bench.metrics.errors.value == 1
        redis_server.client.set(entry_key("other", ETAG), sealed([other]))
        proxy.heal()
        found = await bench.cache.get("other", ETAG, len(other))
        assert found is not None
        assert bytes(found) == other, "and not the answer to the first question"
        assert proxy.accepted > opened


async def test_the_deadline_grows_with_the_object() -> None:
    limits = SharedCacheLimits(timeout_ms=20, max_object_bytes=8 * MIB, ttl_ms=1)
    assert [limits.timeout_s(size) for size in (0, 1, MIB, MIB + 1, 4 * MIB)] == [
        0.02,
        0.02,
        0.02,
        0.04,
        0.08,
    ]


async def test_a_server_that_answers_nothing_is_left_alone_and_tried_again(redis_server: RedisServer) -> None:
    redis_server.client.set(entry_key(KEY, ETAG), sealed([OBJECT]))
    async with running(redis_server.url, timeout_ms=500) as bench:
        with redis_server.paused():
            for _ in range(FAILURES_MAX):
                assert await bench.get() is None
            assert bench.state == BreakerState.OPEN
            assert await bench.get() is None
            assert (bench.metrics.errors.value, bench.metrics.skips.value) == (FAILURES_MAX, 1)
        async with asyncio.timeout(PATIENT_MS / 1000):
            while await bench.get() != OBJECT:
                await asyncio.sleep(0.01)
        assert bench.state == BreakerState.CLOSED


async def test_a_killed_server_is_missed_and_found_again(redis_server: RedisServer) -> None:
    async with running(redis_server.url) as bench:
        await bench.fill()
        assert await bench.get() == OBJECT
        redis_server.kill()
        assert await bench.get() is None
        redis_server.start()
        async with asyncio.timeout(PATIENT_MS / 1000):
            while await bench.get() != OBJECT:
                await bench.fill()


@pytest.mark.parametrize("fault", ["refuse", "reset"])
async def test_connections_that_break_end_nothing(redis_server: RedisServer, fault: str) -> None:
    async with (
        FaultProxy("127.0.0.1", redis_server.port) as proxy,
        running(f"redis://{proxy.address}") as bench,
    ):
        await bench.fill()
        if fault == "refuse":
            proxy.refuse()
        proxy.reset_all()
        await asyncio.gather(*(bench.get() for _ in range(3 * CONNECTIONS_MAX)))
        await bench.fill()
        proxy.heal()
        async with asyncio.timeout(PATIENT_MS / 1000):
            while await bench.get() != OBJECT:
                await bench.fill()


async def _ask_who_hangs_up_at_once() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
    async with server, running(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}") as bench:
        answers = await asyncio.gather(*(bench.get() for _ in range(3 * CONNECTIONS_MAX)))
        assert set(answers) == {None}
        assert bench.state == BreakerState.OPEN
        await bench.fill()


def test_a_server_that_hangs_up_at_once_ends_nothing_on_the_loop_of_services() -> None:
    uvloop.run(_ask_who_hangs_up_at_once())


async def test_calls_that_are_cancelled_lose_no_connection(redis_server: RedisServer) -> None:
    async with FaultProxy("127.0.0.1", redis_server.port) as proxy:
        client = RedisClient(f"redis://{proxy.address}")
        await client.set("key", b"value", ttl_ms=60_000)
        for _ in range(3):
            proxy.silence(Way.DOWN)
            calls = [asyncio.ensure_future(client.get("key")) for _ in range(3 * CONNECTIONS_MAX)]
            await until(lambda: proxy.open_links >= CONNECTIONS_MAX)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            assert all(call.cancelled() for call in calls)
            proxy.heal()
        answers = await asyncio.gather(*(client.get("key") for _ in range(3 * CONNECTIONS_MAX)))
        assert set(answers) == {b"value"}
        await client.close()


async def test_no_more_connections_than_its_bound(redis_server: RedisServer) -> None:
    async with (
        FaultProxy("127.0.0.1", redis_server.port) as proxy,
        running(f"redis://{proxy.address}") as bench,
    ):
        await asyncio.gather(*(bench.get() for _ in range(10 * CONNECTIONS_MAX)))
        assert bench.metrics.misses.value == 10 * CONNECTIONS_MAX
        assert proxy.accepted <= CONNECTIONS_MAX


async def test_fills_past_the_bound_are_dropped_and_hold_no_memory(redis_server: RedisServer) -> None:
    big = bytes(4 * MIB)
    async with running(redis_server.url) as bench:
        fit = cache_module.FILL_BYTES_MAX // len(big)
        for n in range(fit + 5):
            bench.cache.fill(f"{n}", ETAG, (big,))
        assert bench.budget.used_bytes == cache_module.FILL_BYTES_MAX
        assert bench.metrics.dropped.value == 5
        await until(lambda: bench.budget.used_bytes == 0)
        assert bench.metrics.fills.value == fit


async def test_the_line_of_fills_has_an_end(redis_server: RedisServer) -> None:
    async with running(redis_server.url) as bench:
        for n in range(cache_module.FILLS_WAITING_MAX + 3):
            bench.cache.fill(f"{n}", ETAG, (b"small",))
        assert bench.metrics.dropped.value == 3
        await until(lambda: bench.budget.used_bytes == 0)
        assert bench.metrics.fills.value == cache_module.FILLS_WAITING_MAX


async def test_fills_take_no_memory_that_requests_need(redis_server: RedisServer) -> None:
    async with running(redis_server.url, memory_bytes=16 * MIB) as bench:
        bench.budget.force(15 * MIB)
        bench.cache.fill(KEY, ETAG, (OBJECT,))
        assert (bench.metrics.dropped.value, bench.budget.used_bytes) == (1, 15 * MIB)


async def test_a_fill_given_up_frees_its_memory(redis_server: RedisServer) -> None:
    async with running(redis_server.url) as bench:
        fill = bench.cache.prepare(KEY, ETAG, (OBJECT,))
        assert fill is not None
        assert bench.budget.used_bytes == len(OBJECT)
        bench.cache.give_up(fill)
        assert bench.budget.used_bytes == 0


async def test_objects_that_are_too_large_stay_out(redis_server: RedisServer) -> None:
    large = bytes(8 * MIB + 1)
    async with running(redis_server.url) as bench:
        await bench.fill(large)
        assert await bench.get(large) is None
        assert redis_server.client.dbsize() == 0
        assert (bench.metrics.misses.value, bench.metrics.errors.value) == (0, 0)


async def test_a_full_redis_that_evicts_nothing_is_no_error(redis_server: RedisServer) -> None:
    redis_server.client.config_set("maxmemory", "1")
    async with running(redis_server.url) as bench:
        await bench.fill()
        assert await bench.get() is None
        assert bench.metrics.errors.value == 1


async def test_a_wrong_password_is_no_error(redis_server: RedisServer) -> None:
    redis_server.client.config_set("requirepass", "right")
    async with running(f"redis://:wrong@127.0.0.1:{redis_server.port}") as bench:
        assert await bench.get() is None
        assert bench.metrics.errors.value == 1
    async with running(f"redis://:right@127.0.0.1:{redis_server.port}") as bench:
        await bench.fill()
        assert await bench.get() == OBJECT


@given(st.binary(max_size=300), st.binary(max_size=300), st.data())
def test_no_damage_passes_for_the_object(head: bytes, tail: bytes, data: st.DataObject) -> None:
    value = sealed((head, tail))
    assert bytes(unsealed(value) or b"") == head + tail
    cut = data.draw(st.integers(0, len(value) - 1))
    assert unsealed(value[:cut]) is None
    at, bit = data.draw(st.integers(0, len(value) - 1)), 1 << data.draw(st.integers(0, 7))
    assert unsealed(value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :]) is None


# -- settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["http://:hush@host", "redis://", "redis://:hu#sh@host:6379", "redis://:hush@host:99999", "hush"]
)
def test_a_bad_url_is_refused_in_a_sentence_that_does_not_repeat_it(url: str) -> None:
    with pytest.raises(BadSettings, match=r"KAFSCALE_REDIS_URL=\*\*\*: not redis://") as refused:
        read_settings(ServiceSettings, {"redis_url": url})
    assert "hu" not in str(refused.value).replace("that", "")


async def test_options_that_redis_py_does_not_take_are_refused_in_a_sentence() -> None:
    settings = read_settings(ServiceSettings, {"redis_url": "redis://:hush@host:6379/0?no_such_option=1"})
    async with asyncio.TaskGroup() as tasks:
        with pytest.raises(BadRedisUrl) as refused:
            open_shared_cache(
                settings,
                clock=SystemClock(),
                budget=MemoryBudget(MIB),
                metrics=Metrics("fetch"),
                tasks=tasks,
            )
    assert "hush" not in str(refused.value)


def test_an_empty_url_is_none() -> None:
    assert read_settings(ServiceSettings, {"redis_url": ""}).redis_url is None


def test_nothing_of_redis_is_imported_while_it_is_off() -> None:
    program = (
        "import sys, kafscale.runtime.process, kafscale.runtime.shared_cache;"
        "sys.exit(any(name.split('.')[0] in ('redis', 'hiredis') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
