"""Records are deleted while producers and a consumer run, and stay deleted.

Law: after the answer to a deletion, no client of the same front door finds a record or a log start below it,
whichever fetch instance answers. No record at or above the start is lost. This also holds after kill -9 of all
processes and for new owners. A recreated topic starts at 0. etcd and the store agree throughout. Slices of bundles are
settled all the while. In the end settling brings back nothing and loses nothing, and no bundle is left.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.produce import ProduceResponsePartition

from e2e.checkers.history import History
from e2e.harness.bundles import BUNDLES, settle
from e2e.harness.cluster import Cluster
from e2e.harness.inside import bundles_in
from e2e.harness.law import goes_on, keep
from e2e.harness.load import BUSY_PER_S, Load, read_everything
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import ask_fetch, ask_list_offsets, ask_produce, batch, produce_body, send
from e2e.harness.services import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    import kafka
    from kafka.admin import KafkaAdminClient
    from kafka.errors import OffsetOutOfRangeError

PARTITIONS = 3
ROUNDS = 12
LOOKS = 5
EARLIEST = -2
EVERYTHING = -1
ANSWER_S = 30.0
CAUGHT_UP_S = 90.0
SWEEP_S = 60.0
CONFIG = {"internal.segment.bytes": "16384"}
"""Deletions meet open buffers, slices that wait, plans to settle them, and segments."""

pytestmark = pytest.mark.timeout(400)

Starts = Mapping[int, int]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data_dir: Path = tmp_path_factory.mktemp("deleted")
    cluster = Cluster(data_dir=data_dir, scale={"produce": 2, "fetch": 2}, env=BUNDLES)
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def create(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, PARTITIONS, config=CONFIG)])[name].result(ANSWER_S)


def delete(admin: AdminClient, topic: str, offsets: Starts) -> dict[int, int]:
    """The low watermarks in the answers to the deletions."""
    asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    return {
        place.partition: answer.result(ANSWER_S).low_watermark
        for place, answer in admin.delete_records(asked, request_timeout=ANSWER_S).items()
    }


def starts_are(raw: Raw, topic: str, starts: Starts) -> None:
    """Asks every source of log starts several times, because any instance may be behind."""
    for _, (part, start) in itertools.product(range(LOOKS), starts.items()):
        assert ask_list_offsets(raw, EARLIEST, topic=topic, part=part) == (ErrorCode.NONE, start)
        for offset in {0, start - 1} - {start, -1}:
            (below,) = ask_fetch(raw, topic=topic, part=part, offset=offset)
            assert (below.error_code, below.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, start)
        (found,) = ask_fetch(raw, topic=topic, part=part, offset=start)
        assert (found.error_code, found.log_start_offset) == (ErrorCode.NONE, start)


@dataclass(slots=True)
class Follower:
    """Reads every partition from start to end repeatedly. A gap must end at a known log start."""

    bootstrap: str
    topic: str
    seen: dict[int, int] = field(default_factory=dict)  # partition -> last offset
    gaps: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # where reading went on
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._read, name="follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(ANSWER_S)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "follower",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, part, OFFSET_BEGINNING) for part in range(PARTITIONS)])
        while not self._stop.is_set():
            for message in consumer.consume(1000, timeout=0.2):
                partition, offset = message.partition() or 0, message.offset() or 0
                last = self.seen.get(partition)
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                elif last is not None and offset <= last:
                    self.errors.append(f"{partition}/{offset} came after {last}")
                else:
                    if offset != (0 if last is None else last + 1):
                        self.gaps[partition].add(offset)
                    self.seen[partition] = offset
        consumer.close()


def append_in_the_end(bootstrap: str, topic: str, part: int) -> ProduceResponsePartition:
    """The first acknowledgement from the partition's new owner. A lost owner ends the connection."""
    answers: list[ProduceResponsePartition] = []

    def appended() -> bool:
        try:
            with Raw.to(bootstrap) as raw:
                answers[:] = ask_produce(raw, produce_body((topic, part, batch(1))))
        except Closed:
            return False
        return answers[0].error_code == ErrorCode.NONE

    until(f"{topic}/{part} is owned again", appended, CAUGHT_UP_S)
    return answers[0]


def newest_acked(load: Load) -> dict[int, int]:
    newest: dict[int, int] = {}
    for sent, offset in load.so_far().acknowledged.items():
        newest[sent.partition] = max(offset, newest.get(sent.partition, -1))
    return newest


def delete_some(admin: AdminClient, load: Load, starts: Starts, *, everything: bool) -> dict[int, int]:
    """Deletes half of the remaining records, or all. Returns the new starts."""
    acked = newest_acked(load)
    half = {part: max(start, (start + acked[part] + 1) // 2) for part, start in starts.items()}
    found = delete(admin, load.topic, dict.fromkeys(starts, EVERYTHING) if everything else half)
    for part, start in found.items():
        assert start > acked[part] if everything else start == half[part]
    return found


def check_log(
    cluster: Cluster, topic: str, load: Load, starts: Starts
) -> Mapping[int, list[tuple[int, bytes]]]:
    """The rest of the log: it begins at the starts and has every acknowledged record from there on."""
    assert load.errors == []
    log = read_everything(cluster.bootstrap, topic, PARTITIONS)
    assert {part: records[0][0] for part, records in log.items()} == starts
    left = {
        sent: offset for sent, offset in load.history.acknowledged.items() if offset >= starts[sent.partition]
    }
    assert left, "nothing was written after the last deletion"
    keep(History(load.history.idempotent, load.history.sent, left).violations(log))
    return log


def settling_changes_nothing(
    cluster: Cluster, topic: str, starts: Starts, log: Mapping[int, list[tuple[int, bytes]]]
) -> None:
    settle(cluster, topic)
    assert read_everything(cluster.bootstrap, topic, PARTITIONS) == log
    with Raw.to(cluster.bootstrap) as raw:
        starts_are(raw, topic, starts)
    until("no bundle is left", lambda: bundles_in(cluster.open_store) == set(), SWEEP_S)


def test_what_is_deleted_under_load_stays_deleted_through_the_death_of_everything(
    cluster: Cluster, admin: AdminClient
) -> None:
    topic = "purged"
    create(admin, topic)
    load = Load(cluster.bootstrap, topic, PARTITIONS, History(), per_s=BUSY_PER_S)
    load.start("idempotent0", idempotent=True)
    load.start("plain0", idempotent=False)
    follower = Follower(cluster.bootstrap, topic)
    follower.start()
    starts = dict.fromkeys(range(PARTITIONS), 0)
    told: dict[int, set[int]] = {part: {0} for part in starts}
    try:
        with Raw.to(cluster.bootstrap) as raw:
            for turn in range(ROUNDS):
                goes_on(load)
                starts = delete_some(admin, load, starts, everything=turn % 3 == 2)
                for part, start in starts.items():
                    told[part].add(start)
                starts_are(raw, topic, starts)
        cluster.kill()
        cluster.start()
        with Raw.to(cluster.bootstrap) as raw:
            starts_are(raw, topic, starts)
        goes_on(load)
    finally:
        load.stop()
    log = check_log(cluster, topic, load, starts)
    ends = {part: records[-1][0] for part, records in log.items()}
    until("the follower has read to the end", lambda: follower.seen == ends, CAUGHT_UP_S)
    follower.stop()
    assert follower.errors == []
    assert {part: gaps - told[part] for part, gaps in follower.gaps.items() if gaps - told[part]} == {}
    settling_changes_nothing(cluster, topic, starts, log)
    checked = cluster.fsck()
    assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}"
    assert "segments of deleted records below a log start (legal)" in checked.stdout


def test_a_new_owner_keeps_the_start_and_a_topic_made_again_has_none(
    cluster: Cluster, admin: AdminClient
) -> None:
    topic = "moved"
    create(admin, topic)
    everywhere = range(PARTITIONS)
    with Raw.to(cluster.bootstrap) as raw:
        for part in everywhere:
            assert send(raw, batch(10), topic=topic, part=part) == ErrorCode.NONE
        starts = delete(admin, topic, dict.fromkeys(everywhere, 7))
        assert set(starts.values()) == {7}
    for pid in cluster.pids("produce"):
        os.kill(pid, signal.SIGKILL)
    for part in everywhere:
        answer = append_in_the_end(cluster.bootstrap, topic, part)
        assert answer.base_offset >= 10
        assert answer.log_start_offset == 7
    with Raw.to(cluster.bootstrap) as raw:
        starts_are(raw, topic, starts)
        admin.delete_topics([topic])[topic].result(ANSWER_S)
        create(admin, topic)
        for part in everywhere:
            assert send(raw, batch(1), topic=topic, part=part) == ErrorCode.NONE
        starts_are(raw, topic, dict.fromkeys(everywhere, 0))


def test_what_cannot_be_deleted_is_refused_for_its_partition_alone(
    cluster: Cluster, admin: AdminClient
) -> None:
    topic = "refused"
    create(admin, topic)
    with Raw.to(cluster.bootstrap) as raw:
        assert send(raw, batch(5), topic=topic, part=0) == ErrorCode.NONE
        assert send(raw, batch(5), topic=topic, part=1) == ErrorCode.NONE
        answers = admin.delete_records(
            [TopicPartition(topic, 0, 6), TopicPartition(topic, 1, 4)], request_timeout=ANSWER_S
        )
        outcomes = {place.partition: answer for place, answer in answers.items()}
        with pytest.raises(KafkaException) as refused:
            outcomes[0].result(ANSWER_S)
        assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
        assert outcomes[1].result(ANSWER_S).low_watermark == 4
        starts_are(raw, topic, {0: 0, 1: 4, 2: 0})
        assert delete(admin, topic, {1: 2, 2: EVERYTHING}) == {1: 4, 2: 0}


def test_kafka_python_deletes_records_and_sees_them_gone(cluster: Cluster, admin: AdminClient) -> None:
    topic = "python"
    create(admin, topic)
    with Raw.to(cluster.bootstrap) as raw:
        assert send(raw, batch(9), topic=topic, part=1) == ErrorCode.NONE
    place = kafka.TopicPartition(topic, 1)
    python = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    try:
        assert python.delete_records({place: 3})[place]["low_watermark"] == 3
        assert consumer.beginning_offsets([place]) == {place: 3}
        assert python.delete_records({place: EVERYTHING})[place]["low_watermark"] == 9
        assert consumer.beginning_offsets([place]) == consumer.end_offsets([place]) == {place: 9}
        with pytest.raises(OffsetOutOfRangeError):
            python.delete_records({place: 10})
    finally:
        consumer.close()
        python.close()
