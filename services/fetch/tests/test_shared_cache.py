"""Fetch services beside a redis that they share: each segment is read from the store once for all of them."""

import asyncio

import pytest
from kafscale.runtime.shared_cache.entries import ObjectName, entry_key, sealed
from kafscale.runtime.shared_cache.signed_entries import SignedEntries
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.topics import Topic
from kafscale.testkit.forgery import forged
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import FaultyStore
from kafscale.wire.errors import ErrorCode

SEGMENTS = 5
PATIENT = {"redis_timeout_ms": 10_000, "readahead_segments": 0}


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def topic(etcd: EtcdClient, keyspace: Keyspace) -> Topic:
    return await create_topic(etcd, keyspace, "t")


@pytest.fixture
async def log(etcd: EtcdClient, keyspace: Keyspace, store: FaultyStore, topic: Topic) -> LogBuilder:
    built = LogBuilder(etcd, keyspace, store, topic)
    for n in range(SEGMENTS):
        await built.append(records(5, size=500, label=f"s{n}-"))
    return built


def gets(store: FaultyStore) -> int:
    return sum(1 for operation, key in store.requests if operation == "get" and key.endswith(".kfs"))


async def filled(client, until) -> None:
    await until(lambda: client.metric("shared_cache_fills_total") == SEGMENTS)


async def test_what_one_instance_read_others_find(
    etcd, keyspace, store, topic, log, serve, until, redis_server
) -> None:
    async with serve(etcd, keyspace, store, redis_server.url, **PATIENT) as first:
        assert bytes((await first.fetch(topic, 0)).records) == log.expected(0)
        await filled(first, until)
        assert first.metric("shared_cache_misses_total") == SEGMENTS
    async with (
        serve(etcd, keyspace, store, redis_server.url, **PATIENT) as second,
        serve(etcd, keyspace, store, redis_server.url, **PATIENT) as third,
    ):
        for client in (second, third, second):
            assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        assert second.metric("shared_cache_hits_total") == SEGMENTS, "and then from its own memory"
        assert second.service.cache.counters.loads == third.service.cache.counters.loads == 0
    assert gets(store) == SEGMENTS


async def test_an_entry_that_is_another_object_is_deleted_and_the_store_is_read(
    etcd, keyspace, store, topic, log, serve, until, redis_server
) -> None:
    """Whole by its own checksum, of the right size, and yet not what was committed."""
    first, second, *_ = log.segments
    assert first.size == second.size
    key = keyspace.segment_key(topic.name, 0, first.base)
    other = await store.inner.get(keyspace.segment_key(topic.name, 0, second.base))
    redis_server.client.set(entry_key(key, first.etag), sealed([other]))
    async with serve(etcd, keyspace, store, redis_server.url, **PATIENT) as client:
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        await filled(client, until)
        assert client.service.cache.counters.corrupt == 1
        assert client.metric("shared_cache_corrupt_total") == 1
    assert redis_server.client.get(entry_key(key, first.etag)) == sealed([await store.inner.get(key)])


@pytest.mark.parametrize("fault", ["killed", "silent"])
async def test_without_its_redis_a_service_reads_the_store(
    etcd, keyspace, store, topic, log, serve, redis_server, fault
) -> None:
    settings = {"redis_timeout_ms": 50, "readahead_segments": 0, "cache_bytes": 0}
    async with serve(etcd, keyspace, store, redis_server.url, **settings) as client:
        if fault == "killed":
            redis_server.kill()
            answers = await asyncio.gather(*(client.fetch(topic, 5 * n) for n in range(SEGMENTS)))
        else:
            with redis_server.paused():
                answers = await asyncio.gather(*(client.fetch(topic, 5 * n) for n in range(SEGMENTS)))
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
        assert [bytes(answer.records) for answer in answers] == [log.expected(5 * n) for n in range(SEGMENTS)]
        assert client.metric("shared_cache_errors_total") > 0


async def test_without_a_redis_nothing_is_counted(etcd, keyspace, store, topic, log, serve) -> None:
    async with serve(etcd, keyspace, store) as client:
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        assert gets(store) == SEGMENTS


async def with_bundle(log: LogBuilder, keyspace: Keyspace, redis_server) -> str:
    """A bundle that the produce service has put into redis; the name of its entry."""
    log.as_slices = True
    seg = await log.append(records(5, size=500, label="slice-"))
    key = log.segment_key(seg)
    redis_server.client.set(entry_key(key, seg.etag), sealed([await log._store.get(key)]))
    return entry_key(key, seg.etag)


def bundle_gets(store: FaultyStore) -> int:
    return sum(1 for operation, key in store.requests if operation == "get" and key.endswith(".kfb"))


async def test_a_slice_is_a_range_of_the_bundle_that_its_writer_put_there(
    etcd, keyspace, store, topic, log, serve, redis_server
) -> None:
    await with_bundle(log, keyspace, redis_server)
    store.requests.clear()
    async with serve(etcd, keyspace, store, redis_server.url, **PATIENT) as client:
        assert bytes((await client.fetch(topic, 25)).records) == log.expected(25)
        assert client.metric("shared_cache_hits_total") == 1
        assert client.metric("shared_cache_read_bytes_total") == log.segments[-1].size
        assert client.metric("shared_cache_fills_total") == 0
    assert bundle_gets(store) == 0


@pytest.mark.parametrize("damage", ["another bundle", "a flipped bit", "cut short", "gone"])
async def test_a_range_that_is_not_the_slice_is_not_served(
    etcd, keyspace, store, topic, log, serve, until, redis_server, damage
) -> None:
    entry = await with_bundle(log, keyspace, redis_server)
    seg = log.segments[-1]
    value = bytearray(redis_server.client.get(entry))
    if damage == "another bundle":
        other = await log.append(records(5, size=500, label="other-"))
        assert (other.position, other.size) == (seg.position, seg.size)
        redis_server.client.set(entry, sealed([await store.inner.get(log.segment_key(other))]))
    elif damage == "a flipped bit":
        value[seg.position + 100] ^= 1
        redis_server.client.set(entry, bytes(value))
    elif damage == "cut short":
        redis_server.client.set(entry, bytes(value[: seg.position + 100]))
    else:
        redis_server.client.delete(entry)
    store.requests.clear()
    async with serve(etcd, keyspace, store, redis_server.url, **PATIENT) as client:
        answer = await client.fetch(topic, 25, partition_max_bytes=1)
        assert bytes(answer.records) == log.expected(25, 29)
        assert client.service.reader.lost_segments == 0
        assert client.metric("shared_cache_hits_total") + client.metric("shared_cache_misses_total") == 1
    assert bundle_gets(store) == 1
    if damage in ("another bundle", "a flipped bit"):
        assert redis_server.client.get(entry) is None, "the damaged entry is deleted"


# -- with a key, against somebody who can write to redis --------------------------------------------------

MAC_KEY = bytes(range(32))
SIGNED = SignedEntries([MAC_KEY])
ANOTHER_KEY = SignedEntries([bytes(32)])


@pytest.fixture
def keyed(tmp_path) -> dict[str, object]:
    """Settings of a service that signs its entries."""
    file = tmp_path / "mac-keys"
    file.write_text(MAC_KEY.hex())
    return {**PATIENT, "redis_mac_key_file": file}


async def test_forged_records_with_the_right_checksum_are_served_without_a_key_only(
    etcd, keyspace, store, topic, log, serve, redis_server, keyed
) -> None:
    """So the poison is real, and no checksum finds it."""
    first = log.segments[0]
    name = ObjectName(keyspace.segment_key(topic.name, 0, first.base), first.etag)
    data = await store.inner.get(name.key)
    head, lie = SIGNED.sealed(name, [data], in_ranges=False)[: -len(data)], forged(data, len(data) // 2)
    redis_server.client.set(entry_key(*name), sealed([lie]))
    redis_server.client.set(SIGNED.key(name), head + lie)
    async with serve(etcd, keyspace, store, redis_server.url, **PATIENT) as plain:
        served = bytes((await plain.fetch(topic, 0)).records)
        assert len(served) == len(log.expected(0))
        assert served != log.expected(0)
    async with serve(etcd, keyspace, store, redis_server.url, **keyed) as client:
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        assert client.metric("shared_cache_rejected_total") == 1


@pytest.mark.parametrize("poison", ["flipped", "swapped", "older", "truncated", "checksum", "stranger"])
async def test_a_poisoned_segment_is_not_served(
    etcd, keyspace, store, topic, log, serve, until, redis_server, keyed, poison
) -> None:
    first, second, *_ = log.segments
    name = ObjectName(keyspace.segment_key(topic.name, 0, first.base), first.etag)
    other = ObjectName(keyspace.segment_key(topic.name, 0, second.base), second.etag)
    data, of_other = await store.inner.get(name.key), await store.inner.get(other.key)
    assert len(data) == len(of_other)
    value = SIGNED.sealed(name, [data], in_ranges=False)
    poisoned = {
        "flipped": value[:200] + bytes([value[200] ^ 1]) + value[201:],
        "swapped": SIGNED.sealed(other, [of_other], in_ranges=False),
        "older": SIGNED.sealed(name._replace(etag="older"), [data], in_ranges=False),
        "truncated": value[:-1],
        "checksum": sealed([data]),
        "stranger": ANOTHER_KEY.sealed(name, [data], in_ranges=False),
    }[poison]
    redis_server.client.set(SIGNED.key(name), poisoned)
    async with serve(etcd, keyspace, store, redis_server.url, **keyed) as client:
        assert bytes((await client.fetch(topic, 0)).records) == log.expected(0)
        await filled(client, until)
        assert client.metric("shared_cache_rejected_total") == 1
        assert client.metric("shared_cache_misses_total") == SEGMENTS
        assert client.metric("shared_cache_hits_total") == 0
        assert client.service.cache.counters.corrupt == 0, "the records were not even looked at"
    assert redis_server.client.get(SIGNED.key(name)) == value, "the reader has put the segment there again"


@pytest.mark.parametrize(
    "poison", ["nothing", "flipped", "swapped", "older", "truncated", "checksum", "stranger"]
)
async def test_a_slice_of_a_poisoned_bundle_is_not_served(
    etcd, keyspace, store, topic, log, serve, redis_server, keyed, poison
) -> None:
    log.as_slices = True
    seg = await log.append(records(5, size=500, label="slice-"))
    other = await log.append(records(5, size=500, label="other-"))
    assert (other.position, other.size) == (seg.position, seg.size)
    name = ObjectName(log.segment_key(seg), seg.etag)
    data, of_other = await store.inner.get(name.key), await store.inner.get(log.segment_key(other))
    value = SIGNED.sealed(name, [data], in_ranges=True)
    at = 28 + seg.position + 100
    poisoned = {
        "nothing": value,
        "flipped": value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :],
        "swapped": SIGNED.sealed(ObjectName(log.segment_key(other), other.etag), [of_other], in_ranges=True),
        "older": SIGNED.sealed(name._replace(etag="older"), [data], in_ranges=True),
        "truncated": value[:at],
        "checksum": sealed([data]),
        "stranger": ANOTHER_KEY.sealed(name, [data], in_ranges=True),
    }[poison]
    redis_server.client.set(SIGNED.key(name), poisoned)
    store.requests.clear()
    async with serve(etcd, keyspace, store, redis_server.url, **keyed) as client:
        answer = await client.fetch(topic, 25, partition_max_bytes=1)
        assert bytes(answer.records) == log.expected(25, 29)
        is_good = poison == "nothing"
        assert client.metric("shared_cache_hits_total") == is_good
        assert client.metric("shared_cache_rejected_total") == (not is_good)
        assert client.service.cache.counters.corrupt == 0
    assert bundle_gets(store) == (not is_good)
    assert redis_server.client.get(SIGNED.key(name)) == (value if is_good else None)
