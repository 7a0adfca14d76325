"""Spark's own Kafka connector through the front door, in batches and streams, with failOnDataLoss=true.

Law: it reads the rows that a consumer reads and that `format("kafscale")` gives, all eight columns; what it writes a
consumer reads. A stream that is stopped, or whose brokers die, goes on at its checkpoint without a row lost or changed;
one whose next records were deleted fails and says so. Gaps of a compacted topic are none of its troubles. With
read_committed it gets the records of committed transactions alone.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.harness.clients import ALL_CODECS
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.services import until
from e2e.harness.spark_connector import Row, Spark, SparkFailed, ToWrite, consumed, spark
from e2e.harness.transactional import COMMITTED, CONFLUENT, UNCOMMITTED, Scripted, producer, stable_end

PARTITIONS = 3
RECORDS = 60  # with each codec
FIRST_MS = 1_700_000_000_000
ONCE = len(ALL_CODECS) * RECORDS
STEP_MS = 1_000
ANSWER_S = 60.0
CAUGHT_UP_S = 120.0
COMMAND_S = 120.0
FORMATS = ("kafka", "kafscale")
ISOLATION = {"kafka": "kafka.isolation.level", "kafscale": "isolation"}  # the option of each
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "65536",
}

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("connector"),
        scale={"produce": 2, "fetch": 2},
    )
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    with spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> list[Row]:
    """Topics that are only read; what a consumer reads of them."""
    for topic in ("orders", "orders-old"):
        create(cluster, topic)
        produce(cluster, topic)
    create(cluster, "appended", {"message.timestamp.type": "LogAppendTime"})
    produce(cluster, "appended")
    return consumed(cluster.bootstrap, "appended", "orders", "orders-old")


def create(cluster: Cluster, topic: str, config: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, config=dict(config or {}))])[topic].result(ANSWER_S)


def produce(cluster: Cluster, topic: str, first: int = 0) -> None:
    """Some records with each codec, a second apart; keys, values and headers are absent now and then."""
    for turn, codec in enumerate(ALL_CODECS):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "log_level": 0}
        )
        for number in range(first + turn * RECORDS, first + (turn + 1) * RECORDS):
            producer.produce(
                topic,
                None if number % 7 == 6 else b"value %d" % number,
                None if number % 5 == 4 else b"key-%d" % number,
                partition=number % PARTITIONS,
                timestamp=FIRST_MS + number * STEP_MS,
                headers=[*(headers_of(number) or ())],
            )
        assert producer.flush(ANSWER_S) == 0


def headers_of(number: int) -> tuple[tuple[str, bytes | None], ...] | None:
    some = (("n", b"%d" % number), ("none", None), ("n", b""))
    return some[: number % 4] or None


def options(cluster: Cluster, source: str, **more: str) -> dict[str, str]:
    """Where the cluster is for a format; everything else is called the same in both."""
    where = (
        {"kafka.bootstrap.servers": cluster.bootstrap}
        if source == "kafka"
        else {"dataDir": str(cluster.data_dir)}
    )
    return {**where, "failOnDataLoss": "true", "includeHeaders": "true", **more}


def of(rows: Sequence[Row], *topics: str) -> list[Row]:
    return [row for row in rows if row.topic in topics]


def flat(batches: Mapping[int, list[Row]]) -> list[Row]:
    return sorted(chain.from_iterable(batches.values()))


@pytest.mark.parametrize("source", FORMATS)
def test_a_batch_is_what_a_consumer_reads(
    cluster: Cluster, session: Spark, orders: list[Row], source: str
) -> None:
    everything = options(cluster, source, subscribe="orders,appended")
    assert session.read(source, everything) == of(orders, "orders", "appended")
    assert session.columns(source, everything) == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    without = options(cluster, source, subscribe="orders", includeHeaders="false")
    assert "headers" not in session.columns(source, without)
    assert {row.timestamp_type for row in of(orders, "orders")} == {0}
    assert {row.timestamp_type for row in of(orders, "appended")} == {1}


@pytest.mark.parametrize("source", FORMATS)
def test_topics_are_chosen_by_a_pattern_and_partitions_by_name(
    cluster: Cluster, session: Spark, orders: list[Row], source: str
) -> None:
    by_pattern = options(cluster, source, subscribePattern="orders.*")
    assert session.read(source, by_pattern) == of(orders, "orders", "orders-old")
    assigned = options(cluster, source, assign=json.dumps({"orders": [0, 2]}))
    assert session.read(source, assigned) == [row for row in of(orders, "orders") if row.partition != 1]


@pytest.mark.parametrize("source", FORMATS)
def test_offsets_bound_a_batch(cluster: Cluster, session: Spark, orders: list[Row], source: str) -> None:
    bounded = options(
        cluster,
        source,
        subscribe="orders",
        startingOffsets=json.dumps({"orders": {"0": 5, "1": -2, "2": ONCE // PARTITIONS}}),
        endingOffsets=json.dumps({"orders": {"0": 20, "1": -1, "2": -1}}),
    )
    assert session.read(source, bounded) == [
        row
        for row in of(orders, "orders")
        if (row.partition == 0 and 5 <= row.offset < 20) or row.partition == 1
    ]


@pytest.mark.parametrize("source", FORMATS)
def test_times_bound_a_batch(cluster: Cluster, session: Spark, orders: list[Row], source: str) -> None:
    first, end = FIRST_MS + 100 * STEP_MS, FIRST_MS + 200 * STEP_MS + 1
    everywhere = options(
        cluster, source, subscribe="orders", startingTimestamp=str(first), endingTimestamp=str(end)
    )
    within = [row for row in of(orders, "orders") if first <= row.timestamp_us // 1_000 < end]
    assert session.read(source, everywhere) == within
    by_partition = options(
        cluster,
        source,
        subscribe="orders",
        startingOffsetsByTimestamp=json.dumps({"orders": {"0": first, "1": end, "2": first}}),
        endingOffsetsByTimestamp=json.dumps({"orders": {"0": end, "1": end, "2": end}}),
    )
    assert session.read(source, by_partition) == [row for row in within if row.partition != 1]
    too_late = options(cluster, source, subscribe="orders", startingTimestamp=str(FIRST_MS * 2))
    with pytest.raises(SparkFailed):
        session.read(source, too_late)
    assert session.read(source, {**too_late, "startingOffsetsByTimestampStrategy": "latest"}) == []


def test_a_batch_is_written_to_the_topics_that_its_rows_name(cluster: Cluster, session: Spark) -> None:
    rows = [
        ToWrite(
            key=None if number % 3 == 0 else b"key-%d" % number,
            value=None if number % 4 == 0 else b"value-%d" % number,
            headers=headers_of(number),
            topic=f"written-{number % 2}",
            partition=number % PARTITIONS,
        )
        for number in range(200)
    ]
    for topic in ("written-0", "written-1", "written-all"):
        create(cluster, topic)
    session.write(rows, options(cluster, "kafka"))
    found = consumed(cluster.bootstrap, "written-0", "written-1")

    def key(row: Row | ToWrite) -> str:
        return repr((row.topic, row.partition, row.key, row.value, row.headers))

    assert sorted(map(key, found)) == sorted(map(key, rows))
    for source in FORMATS:
        assert session.read(source, options(cluster, source, subscribe="written-0,written-1")) == found
    for codec in ALL_CODECS:
        compressed = {"kafka.compression.type": codec}
        session.write(rows, options(cluster, "kafka", topic="written-all", **compressed))
    everything = consumed(cluster.bootstrap, "written-all")
    assert sorted(row.value or b"" for row in everything) == sorted(
        row.value or b"" for row in rows * len(ALL_CODECS)
    )


def test_a_stream_ends_with_what_there_is_and_resumes(
    cluster: Cluster, session: Spark, tmp_path: Path
) -> None:
    create(cluster, "streamed")
    produce(cluster, "streamed")
    bounded = options(
        cluster, "kafka", subscribe="streamed", startingOffsets="earliest", maxOffsetsPerTrigger="150"
    )
    batches = session.stream(bounded, tmp_path)
    assert flat(batches) == consumed(cluster.bootstrap, "streamed")
    assert len(batches) >= ONCE / 150
    assert max(map(len, batches.values())) <= 150
    assert flat(session.stream(bounded, tmp_path)) == []
    produce(cluster, "streamed", ONCE)
    resumed = session.stream(bounded, tmp_path)
    everything = consumed(cluster.bootstrap, "streamed")
    assert flat(batches | resumed) == everything
    assert len(flat(resumed)) == ONCE
    assert session.read("kafscale", options(cluster, "kafscale", subscribe="streamed")) == everything


def test_a_stream_writes_what_it_reads_and_resumes(cluster: Cluster, session: Spark, tmp_path: Path) -> None:
    for topic in ("from", "to"):
        create(cluster, topic)
    source = options(
        cluster, "kafka", subscribe="from", startingOffsets="earliest", maxOffsetsPerTrigger="100"
    )
    sink = options(cluster, "kafka", topic="to")

    def in_upper_case(row: Row) -> tuple[Any, ...]:
        return row.partition, row.key, row.value and row.value.upper(), row.headers

    for first in (0, ONCE):
        produce(cluster, "from", first)
        assert session.copy(source, sink, tmp_path) >= ONCE / 100
        read, written = consumed(cluster.bootstrap, "from"), consumed(cluster.bootstrap, "to")
        assert sorted(map(repr, map(in_upper_case, read))) == sorted(map(repr, map(in_upper_case, written)))


def test_a_stream_goes_on_through_deaths_of_brokers_and_a_stop(
    cluster: Cluster, session: Spark, tmp_path: Path
) -> None:
    create(cluster, "live")
    live = options(cluster, "kafka", subscribe="live", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    session.begin("live", live, tmp_path)

    def has_read(count: int) -> None:
        until(f"the stream has read {count}", lambda: session.count("live") >= count, CAUGHT_UP_S)

    for turn, victim in enumerate(("fetch", "produce")):
        produce(cluster, "live", turn * ONCE)
        has_read(turn * ONCE + 1)
        cluster.signal(victim, signal.SIGKILL)
        has_read((turn + 1) * ONCE)
    produce(cluster, "live", 2 * ONCE)
    has_read(2 * ONCE + 1)
    before = session.end("live")
    after = session.stream(live, tmp_path)
    again = before.keys() & after.keys()
    assert {number: before[number] for number in again} == {number: after[number] for number in again}
    assert flat(before | after) == consumed(cluster.bootstrap, "live")


def test_what_was_deleted_before_it_was_read_is_said(
    cluster: Cluster, session: Spark, tmp_path: Path
) -> None:
    topic = "deleted"
    create(cluster, topic)
    produce(cluster, topic)
    stream = options(cluster, "kafka", subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    assert len(flat(session.stream(stream, tmp_path))) == ONCE
    produce(cluster, topic, ONCE)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    start = ONCE // PARTITIONS + 10
    for deleted in admin.delete_records(
        [TopicPartition(topic, part, start) for part in range(PARTITIONS)]
    ).values():
        assert deleted.result(ANSWER_S).low_watermark == start
    with pytest.raises(SparkFailed, match="(?i)data.?loss"):
        session.stream(stream, tmp_path)
    left = consumed(cluster.bootstrap, topic)
    assert {row.offset for row in left} == set(range(start, 2 * ONCE // PARTITIONS))
    assert flat(session.stream({**stream, "failOnDataLoss": "false"}, tmp_path)) == left
    gone = json.dumps({topic: {str(part): 0 for part in range(PARTITIONS)}})
    for source in FORMATS:
        with pytest.raises(SparkFailed, match="(?i)data.?loss|out of range"):
            session.read(source, options(cluster, source, subscribe=topic, startingOffsets=gone))
        assert session.read(source, options(cluster, source, subscribe=topic)) == left


def test_a_compacted_topic_is_read_over_its_gaps(cluster: Cluster, session: Spark, tmp_path: Path) -> None:
    create(cluster, "compacted", COMPACTED)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0})
    written = 3_000
    for number in range(written):
        producer.produce(
            "compacted",
            b"%d " % number + b"." * 100,
            b"key-%d" % (number % 50),
            partition=number % PARTITIONS,
        )
        if number % 100 == 99:
            assert producer.flush(ANSWER_S) == 0
    cluster.restart()  # hands the partitions over: what is in a head's tail is not compacted, and leaves it so
    while compacted(cluster):
        pass
    left = consumed(cluster.bootstrap, "compacted")
    assert len(left) < written // 2
    assert max(row.offset for row in left) == written // PARTITIONS - 1
    for source in FORMATS:
        assert session.read(source, options(cluster, source, subscribe="compacted")) == left
    bounded = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "700"}
    stream = options(cluster, "kafka", subscribe="compacted", **bounded)
    assert flat(session.stream(stream, tmp_path)) == left


def test_only_committed_records_are_read(cluster: Cluster, session: Spark, tmp_path: Path) -> None:
    create(cluster, "paid")

    def wanted(*numbers: int) -> list[tuple[int, bytes]]:
        return [(part, b"%d" % number) for part in range(PARTITIONS) for number in numbers]

    def seen(rows: Sequence[Row]) -> list[tuple[int, bytes | None]]:
        return [(row.partition, row.value) for row in rows]

    def stable_at(end: int) -> None:
        """The end of a transaction is seen some time after its commit has returned."""
        for part in range(PARTITIONS):
            until(
                f"partition {part} is stable up to {end}",
                lambda part=part: stable_end(cluster.bootstrap, "paid", part) == end,  # type: ignore[misc]
                ANSWER_S,
            )

    bounded = {
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "5",
    }  # some end between record and marker
    stream = options(cluster, "kafka", subscribe="paid", **bounded, **{ISOLATION["kafka"]: COMMITTED})
    with producer(CONFLUENT, cluster.bootstrap, "paying") as paying:
        for number in range(6):
            pay(paying, number)
            (paying.abort if number % 2 else paying.commit)()
        pay(paying, 6)
        stable_at(12)
        for source in FORMATS:
            every = options(cluster, source, subscribe="paid")
            committed = session.read(source, {**every, ISOLATION[source]: COMMITTED})
            assert committed == consumed(cluster.bootstrap, "paid")
            assert seen(committed) == wanted(0, 2, 4)
            assert seen(session.read(source, {**every, ISOLATION[source]: UNCOMMITTED})) == wanted(*range(7))
        assert seen(flat(session.stream(stream, tmp_path))) == wanted(0, 2, 4)
        paying.commit()
        stable_at(14)
        assert seen(flat(session.stream(stream, tmp_path))) == wanted(6)


def pay(paying: Scripted, number: int) -> None:
    """A record in each partition, in a transaction that stays open."""
    paying.begin()
    for part in range(PARTITIONS):
        paying.send("paid", part, str(number))
    paying.sent()


def compacted(cluster: Cluster) -> list[dict[str, Any]]:
    """A round of compaction; what it did."""
    command = ["compact", "--yes", "--grace", "0s", "--data-dir", str(cluster.data_dir), "--output", "json"]
    done = subprocess.run(
        [*KAFSCALE, *command], capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert [row["trouble"] for row in rows] == [None] * len(rows)
    return rows


def test_what_was_done_to_it_left_the_cluster_whole(cluster: Cluster) -> None:
    checked = cluster.fsck()
    assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}"
