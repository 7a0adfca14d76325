"""Three fetch services, ten consumers of one topic, a real S3 server, and a redis that they share, or lose.

Laws: with redis on, ten consumers cost at most 1.2 reads of the store for each segment, and none for a log that was
just written; without it the same consumers cost more, so that the first law says something. Whatever becomes of redis
in the middle of it, each consumer gets each record and no error. A service that has no use for redis does not load it.
With a key, records that somebody else put into redis reach no consumer.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafscale.runtime.shared_cache import signed_entries
from kafscale.runtime.shared_cache.entries import ObjectName, entry_key, sealed
from kafscale.testkit.forgery import forged
from kafscale.testkit.redis import RedisServer
from kafscale.testkit.seaweed import SeaweedServer, require_weed

from e2e.harness.bundles import SEGMENTS
from e2e.harness.cluster import Cluster
from e2e.harness.deployment import s3_env
from e2e.harness.inside import metric
from e2e.harness.load import read_everything
from e2e.harness.services import until

log = logging.getLogger(__name__)

TOPIC = "read-by-many"
PARTITIONS = 6
FETCHERS = 3
CONSUMERS = 10
WAVES = 2
"""Half of them come when the others have read all."""
RECORDS = 6_000
VALUE = b"a value of a hundred and some bytes that no two records share: "
READS_PER_SEGMENT_MAX = 1.2
PATIENT_MS = "5000"
"""The machine that tests is busy; how long a read may wait is not what is counted here."""
SETTINGS = {
    **SEGMENTS,
    "KAFSCALE_NUM_PARTITIONS": str(PARTITIONS),
    "KAFSCALE_CACHE_BYTES": "0",  # nothing stays in a service's own memory when its answer is gone
    "KAFSCALE_FLUSH_INTERVAL_MS": "50",
}
IN_BUNDLES = {"KAFSCALE_BUNDLE_DIRECT_BYTES": str(1 << 20)}

pytestmark = pytest.mark.timeout(400)


@dataclass(slots=True)
class Shared:
    """A running system, and the redis beside it."""

    cluster: Cluster
    redis: RedisServer

    def total(self, role: str, name: str) -> float:
        """A metric of a service, over its instances."""
        addresses = [instance.http_address for instance in self.cluster.inside().instances(role)]
        return sum(sum(metric(each, f"kafscale_{role}_{name}").values()) for each in addresses)

    def write(self) -> None:
        """Many small segments."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 5, "log_level": 0})
        for n in range(RECORDS):
            producer.produce(TOPIC, VALUE + b"%d" % n, partition=n % PARTITIONS)
            if n % 200 == 0:
                producer.flush()
        assert producer.flush() == 0

    @property
    def segments(self) -> float:
        return self.total("produce", "flushes_total")

    @property
    def bundles(self) -> float:
        return self.total("produce", "bundle_slices_count")

    def is_filled(self) -> bool:
        return self.total("produce", "shared_cache_fills_total") == (self.bundles or self.segments)

    def reads_per_segment(self, consume: Callable[[], None]) -> float:
        before = self.total("fetch", "cache_loads_total")
        consume()
        return (self.total("fetch", "cache_loads_total") - before) / self.segments

    def consume(self, *, at_once: int = CONSUMERS // WAVES, waves: int = WAVES) -> None:
        """Each consumer gets every record once, in order, and no error."""
        for _ in range(waves):
            with ThreadPoolExecutor(at_once) as threads:
                for read in [threads.submit(self._read) for _ in range(at_once)]:
                    check(read.result())

    def _read(self) -> dict[int, list[tuple[int, bytes]]]:
        return read_everything(self.cluster.bootstrap, TOPIC, PARTITIONS)

    def hits_when_read(self) -> bool:
        """One consumer reads everything; whether some of it came from redis."""
        before = self.total("fetch", "shared_cache_hits_total")
        self.consume(at_once=1, waves=1)
        return self.total("fetch", "shared_cache_hits_total") > before

    def consume_while(self, happens: Callable[[], AbstractContextManager[None]]) -> None:
        """It happens when the consumers have got something from redis, and ends when as many more have all.

        They begin again where they have all without it: redis was left alone for a moment, as on a busy machine.
        """
        before = self.total("fetch", "shared_cache_hits_total")
        with ThreadPoolExecutor(1) as thread:
            consumed = thread.submit(self.consume)

            def is_read() -> bool:
                nonlocal consumed
                if self.total("fetch", "shared_cache_hits_total") > before:
                    return True
                if consumed.done():
                    consumed.result()
                    consumed = thread.submit(self.consume)
                return False

            until("redis is read", is_read)
            with happens():
                consumed.result()
                self.consume()


def check(found: dict[int, list[tuple[int, bytes]]]) -> None:
    values = {value for records in found.values() for _, value in records}
    assert values == {VALUE + b"%d" % n for n in range(RECORDS)}
    for records in found.values():
        assert [offset for offset, _ in records] == list(range(RECORDS // PARTITIONS))


@pytest.fixture(scope="module")
def seaweed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    require_weed()
    server = SeaweedServer(tmp_path_factory.mktemp("s3"))
    server.start()
    server.wait_ready()
    yield server
    server.kill()


@contextmanager
def running(folder: Path, s3: SeaweedServer, **settings: str) -> Iterator[Shared]:
    redis = RedisServer(folder / "redis")
    redis.start()
    bucket = (
        uuid.uuid4().hex
    )  # `kafscale up` has one namespace, so clusters in one bucket would share their objects
    s3.wait_ready(bucket)
    env = {**SETTINGS, **s3_env(s3), "KAFSCALE_S3_BUCKET": bucket, "KAFSCALE_REDIS_URL": redis.url}
    cluster = Cluster(
        data_dir=folder / "data",
        scale={"fetch": FETCHERS},
        env={**env, **settings},
        options=("--store", "s3"),
    )
    try:
        cluster.start()
        shared = Shared(cluster, redis)
        shared.write()
        yield shared
    finally:
        cluster.kill()
        redis.client.close()
        redis.kill()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory, seaweed_server: SeaweedServer) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("patient")
    with running(folder, seaweed_server, KAFSCALE_REDIS_TIMEOUT_MS=PATIENT_MS) as shared:
        until("each segment is put there", shared.is_filled)
        yield shared


def test_a_log_that_was_just_written_costs_no_read_of_the_store(patient: Shared) -> None:
    assert patient.reads_per_segment(patient.consume) == 0


def test_bundles_that_were_just_written_cost_no_read_of_the_store(
    tmp_path: Path, seaweed_server: SeaweedServer
) -> None:
    with running(tmp_path, seaweed_server, **IN_BUNDLES, KAFSCALE_REDIS_TIMEOUT_MS=PATIENT_MS) as shared:
        assert shared.bundles > 0
        until("each bundle is put there", shared.is_filled)
        before = shared.total("fetch", "cache_loads_total"), shared.total("fetch", "shared_cache_hits_total")
        shared.consume()
        after = shared.total("fetch", "cache_loads_total"), shared.total("fetch", "shared_cache_hits_total")
        assert (after[0], after[1] > before[1]) == (before[0], True)


def entries_in(redis: RedisServer) -> dict[ObjectName, bytes]:
    """The signed entries, by the objects that they hold."""
    found = {}
    for key in redis.client.keys(f"{signed_entries.PREFIX}*"):
        value = redis.client.get(key)
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        object_key, _, etag = key.decode().removeprefix(signed_entries.PREFIX).rpartition(":")
        found[ObjectName(object_key, etag)] = value
    return found


def poison(redis: RedisServer) -> int:
    """Every entry becomes the work of somebody without the key; returns how many. All checksums are right."""
    entries, stranger = entries_in(redis), signed_entries.SignedEntries([bytes(32)])
    values = [*entries.values()]
    for n, (name, value) in enumerate(entries.items()):
        lie = forged(value, len(value) // 2)
        body = lie[signed_entries.HEAD_SIZE :]
        poisons = (lie, values[n - 1], stranger.sealed(name, [body], in_ranges=True))
        redis.client.set(stranger.key(name), poisons[n % len(poisons)])
        redis.client.set(entry_key(*name), sealed([body]))
    return len(entries)


@pytest.mark.parametrize("written", [IN_BUNDLES, SEGMENTS], ids=["bundles", "segments"])
def test_no_consumer_gets_what_somebody_else_put_into_redis(
    tmp_path: Path, seaweed_server: SeaweedServer, written: Mapping[str, str]
) -> None:
    keys = tmp_path / "mac-keys"
    keys.write_text(f"{bytes(range(32)).hex()}\n")
    settings = {**written, "KAFSCALE_REDIS_TIMEOUT_MS": PATIENT_MS}
    with running(tmp_path, seaweed_server, KAFSCALE_REDIS_MAC_KEY_FILE=str(keys), **settings) as shared:
        until("all is put there", shared.is_filled)
        shared.consume(at_once=1, waves=1)
        assert shared.total("fetch", "shared_cache_hits_total") > 0
        assert shared.total("fetch", "shared_cache_rejected_total") == 0
        assert poison(shared.redis) > 3
        shared.consume(at_once=2, waves=1)
        assert shared.total("fetch", "shared_cache_rejected_total") > 0
        assert shared.total("fetch", "corrupt_reads_total") == 0


def test_ten_consumers_of_a_cold_log_cost_little_more_than_one(patient: Shared) -> None:
    """A machine that stalls lets a lease end, and its segment is read once more: such a turn is taken again."""

    def costs_little_more() -> bool:
        patient.redis.client.flushall()
        reads = patient.reads_per_segment(patient.consume)
        log.info("%.2f reads of the store for each segment", reads)
        assert reads >= 1
        return reads <= READS_PER_SEGMENT_MAX

    until("ten consumers cost little more than one", costs_little_more)


def test_only_who_reads_and_writes_segments_has_redis_in_memory(patient: Shared) -> None:
    def has_it(role: str) -> bool:
        (pid, *_) = patient.cluster.pids(role)
        return "hiredis" in Path(f"/proc/{pid}/maps").read_text()

    roles = ("frontdoor", "produce", "fetch", "coordinator", "admin")
    assert {role for role in roles if has_it(role)} == {"produce", "fetch"}


@contextmanager
def killed(shared: Shared) -> Iterator[None]:
    shared.redis.kill()
    try:
        yield
    finally:
        shared.redis.start()


def emptied(shared: Shared) -> AbstractContextManager[None]:
    shared.redis.client.flushall()
    return nullcontext()


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, seaweed_server: SeaweedServer) -> Iterator[Shared]:
    """With the timeout that is the default, which a busy machine passes now and then."""
    with running(tmp_path_factory.mktemp("quick"), seaweed_server) as shared:
        yield shared


@pytest.mark.parametrize("what", ["killed", "paused", "emptied"])
def test_no_consumer_notices_what_becomes_of_redis(quick: Shared, what: str) -> None:
    happens = {
        "killed": lambda: killed(quick),
        "paused": quick.redis.paused,
        "emptied": lambda: emptied(quick),
    }
    until("redis is used", quick.hits_when_read)
    reads = quick.reads_per_segment(lambda: quick.consume_while(happens[what]))
    assert reads > 0
    if what != "emptied":
        assert quick.total("fetch", "shared_cache_errors_total") > 0


def test_without_redis_the_same_consumers_cost_more(quick: Shared) -> None:
    with killed(quick):
        reads = quick.reads_per_segment(quick.consume)
    log.info("%.2f reads of the store for each segment", reads)
    assert reads > READS_PER_SEGMENT_MAX
