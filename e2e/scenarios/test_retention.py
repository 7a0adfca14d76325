"""Retention deletes segments while producers and consumers run, and is killed repeatedly.

Law: a log's start only rises, and every record from it on exists. A consumer below it gets OFFSET_OUT_OF_RANGE and
continues at the start, which ListOffsets returns too. In the end no expired record, no bundle and no unreferenced
object is left, and fsck is clean. This holds for upkeep's job, for `kafscale retention apply` at the same time, and
when either is killed. Log starts move past slices of bundles and past segments, while owners settle slices. A topic
without limits has slices in the same bundles and loses nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch

from e2e.checkers.history import History
from e2e.harness.bundles import BUNDLES, settle
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.inside import bundles_in, changed_in_store
from e2e.harness.law import goes_on, keep, nap
from e2e.harness.load import BUSY_PER_S, Load, read_everything
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import ask_fetch, ask_list_offsets, send
from e2e.harness.services import until

PARTITIONS = 2
PARTITIONS_BESIDE = 16
"""So many that nearly every bundle is named by one of them."""
KEPT_BYTES = 3_000
"""Less than the slices that wait in a tail, so log starts move past slices as well as segments."""
EARLIEST = -2
ANSWER_S = 60.0
SAMPLE_S = 0.5
COMMAND_S = 300.0
CYCLES_QUICK = 4
CYCLES_CHAOS = int(os.environ.get("CYCLES", "50"))
SETTINGS = {
    "KAFSCALE_RETENTION_EVERY_MS": "300",
    "KAFSCALE_RETENTION_GRACE_MS": "300",
    "KAFSCALE_ORPHANS_EVERY_MS": "1500",
    "KAFSCALE_PRODUCE_LINGER_MS": "50",  # so that bundles have slices of both topics
    **BUNDLES,
}
VICTIMS = ("produce", "fetch", "upkeep")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path, scale={"produce": 2, "fetch": 2}, env=SETTINGS)
    cluster.start()
    yield cluster
    cluster.kill()


def create(cluster: Cluster, name: str, partitions: int = PARTITIONS, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    config = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, config=config)])[name].result(ANSWER_S)


def command(cluster: Cluster, *words: str) -> list[str]:
    return [*KAFSCALE, *words, "--data-dir", str(cluster.data_dir)]


def answer(cluster: Cluster, *words: str) -> Any:
    done = subprocess.run(
        command(cluster, *words, "--output", "json"),
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def start_of(cluster: Cluster, topic: str, part: int) -> int:
    """What ListOffsets says, as soon as somebody answers: services may be dying."""
    found: list[int] = []

    def told() -> bool:
        try:
            with Raw.to(cluster.bootstrap) as raw:
                error, start = ask_list_offsets(raw, EARLIEST, topic=topic, part=part)
        except Closed:
            return False
        found.append(start)
        return error == ErrorCode.NONE

    until(f"{topic}/{part} has a log start", told, ANSWER_S)
    return found[-1]


def starts_of(cluster: Cluster, topic: str) -> dict[int, int]:
    return {part: start_of(cluster, topic, part) for part in range(PARTITIONS)}


def of_now(count: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return build_batch([Record(timestamp=now_ms, value=b"v") for _ in range(count)])


@dataclass(slots=True)
class Reader:
    """Reads every partition from its start, and pauses on request. Remembers each offset to which it had to leap."""

    bootstrap: str
    topic: str
    seen: dict[int, int] = field(default_factory=dict)  # partition -> last offset
    leaps: list[tuple[int, int]] = field(default_factory=list)  # partition, where it went on
    errors: list[str] = field(default_factory=list)
    _going: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._going.set()
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()

    def pause(self) -> None:
        self._going.clear()

    def go_on(self) -> None:
        self._going.set()

    def stop(self) -> None:
        self._stop.set()
        self._going.set()
        assert self._thread is not None
        self._thread.join(ANSWER_S)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                # Little ahead, so that a pause leaves the reader behind.
                "queued.max.messages.kbytes": 1,
                "fetch.message.max.bytes": 1_000,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, part, OFFSET_BEGINNING) for part in range(PARTITIONS)])
        while not self._stop.is_set():
            self._going.wait()
            for message in consumer.consume(200, timeout=0.2):
                partition, offset = message.partition() or 0, message.offset() or 0
                last = self.seen.get(partition)
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                elif last is not None and offset <= last:
                    self.errors.append(f"{partition}/{offset} came after {last}")
                else:
                    if offset != (0 if last is None else last + 1):
                        self.leaps.append((partition, offset))
                    self.seen[partition] = offset
        consumer.close()


def falls_behind(cluster: Cluster, reader: Reader) -> None:
    """The reader sleeps until what it would read next is gone, and goes on; where it went on is a log start."""
    leaps = len(reader.leaps)
    reader.pause()
    behind = dict(reader.seen)
    until(
        "retention overtakes a reader that sleeps",
        lambda: all(start > behind[part] + 500 for part, start in starts_of(cluster, reader.topic).items()),
        ANSWER_S,
    )
    reader.go_on()
    until("the reader gets the error and goes on", lambda: len(reader.leaps) > leaps, ANSWER_S)


def below_is_out_of_range(cluster: Cluster, topic: str, part: int) -> None:
    """Soon after ListOffsets has answered a log start, nothing below it is served, and no client gets a lower one."""
    start = start_of(cluster, topic, part)

    def refused() -> bool:
        try:
            with Raw.to(cluster.bootstrap) as raw:
                (below,) = ask_fetch(raw, topic=topic, part=part, offset=start - 1)
        except Closed:
            return False
        if below.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return False
        assert below.log_start_offset >= start
        return True

    until(f"{topic}/{part} refuses {start - 1}", refused, ANSWER_S)


def passes_a_slice(cluster: Cluster, topic: str) -> None:
    """All records of a slice are below a log start before its owner has settled it."""

    def passed() -> bool:
        starts = starts_of(cluster, topic)
        heads = cluster.inside().heads(topic)
        return any(seg.is_slice and seg.end <= starts[part] for part in starts for seg in heads[part].tail)

    until("a log start passes a slice", passed, ANSWER_S)


@contextmanager
def no_object_lost(cluster: Cluster, topic: str) -> Iterator[None]:
    """All the while the store has each object that the topic's heads name."""
    stop, lost, inside = threading.Event(), list[str](), cluster.inside()

    def look() -> None:
        objects = inside.committed(topic)
        lost.extend(changed_in_store(cluster.open_store, objects, lambda: inside.committed(topic)))

    def sample() -> None:
        while not stop.wait(SAMPLE_S):
            look()

    thread = threading.Thread(target=sample, name="objects", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    look()
    assert lost == []


def endure(cluster: Cluster, load: Load, reader: Reader, cycles: int, victims: tuple[str, ...]) -> None:
    """Runs of the command are killed at any of their moments, and so are the victims."""
    chance = random.Random(random.SystemRandom().randrange(2**32))
    for cycle in range(cycles):
        run = subprocess.Popen(
            command(cluster, "retention", "apply", "--yes", "--grace", "100ms"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        nap(chance.uniform(0.2, 4))  # the moment of death is what is random here
        run.kill()
        run.wait(ANSWER_S)
        if cycle % 2:
            kill_one(cluster, chance.choice(victims))
        goes_on(load)
        if cycle % 10 == 1:
            falls_behind(cluster, reader)
        passes_a_slice(cluster, load.topic)
        for part in range(PARTITIONS):
            below_is_out_of_range(cluster, load.topic, part)


def kill_one(cluster: Cluster, role: str) -> None:
    until(f"{role} is there to be killed", lambda: bool(cluster.pids(role)), ANSWER_S)
    cluster.signal(role, signal.SIGKILL)


def retained(cluster: Cluster, cycles: int, victims: tuple[str, ...]) -> None:
    topic = "kept"
    create(cluster, topic, retention_bytes=str(KEPT_BYTES), retention_ms="-1")
    load = Load(cluster.bootstrap, topic, PARTITIONS, History(), per_s=BUSY_PER_S)
    load.start("idempotent0", idempotent=True)
    load.start("plain0", idempotent=False)
    create(cluster, "beside", PARTITIONS_BESIDE, retention_ms="-1")
    beside = Load(cluster.bootstrap, "beside", PARTITIONS_BESIDE, History(), per_s=BUSY_PER_S)
    beside.start("beside0", idempotent=True)
    reader = Reader(cluster.bootstrap, topic)
    try:
        goes_on(load)
        reader.start()
        until("retention begins", lambda: min(starts_of(cluster, topic).values()) > 0, ANSWER_S)
        with no_object_lost(cluster, beside.topic):
            endure(cluster, load, reader, cycles, victims)
    finally:
        load.stop()
        beside.stop()
    nothing_more_to_do(cluster)
    assert beside.errors == []
    keep(beside.history.violations(read_everything(cluster.bootstrap, beside.topic, PARTITIONS_BESIDE)))
    log = check_log(cluster, load)
    ends = {part: records[-1][0] for part, records in log.items()}
    until("the reader has read to the end", lambda: reader.seen == ends, ANSWER_S)
    reader.stop()
    assert reader.errors == []
    assert all(offset <= log[part][0][0] for part, offset in reader.leaps), "a leap ended above the start"


def nothing_more_to_do(cluster: Cluster) -> None:
    """By the command, since the job may have been killed a moment ago. Slices below a log start become segments
    first."""
    settle(cluster)
    answer(cluster, "retention", "apply", "--yes", "--grace", "0s")
    assert answer(cluster, "retention", "apply", "--dry-run")["plan"] == []
    answer(cluster, "orphans", "--yes", "--grace", "0s")
    assert answer(cluster, "orphans", "--dry-run")["plan"] == []
    until("no bundle is left", lambda: bundles_in(cluster.open_store) == set(), ANSWER_S)


def check_log(cluster: Cluster, load: Load) -> dict[int, list[tuple[int, bytes]]]:
    assert load.errors == []
    log = read_everything(cluster.bootstrap, load.topic, PARTITIONS)
    starts = {part: records[0][0] for part, records in log.items()}
    assert starts == starts_of(cluster, load.topic)
    assert min(starts.values()) > 0
    left = {
        sent: offset for sent, offset in load.history.acknowledged.items() if offset >= starts[sent.partition]
    }
    keep(History(load.history.idempotent, load.history.sent, left).violations(log))
    checked = cluster.fsck()
    assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}"
    assert " 0 orphans" in checked.stdout, checked.stdout
    assert "still stored" not in checked.stdout or ", 0 of them still stored" in checked.stdout
    return log


def test_what_is_below_goes_and_what_is_above_stays_through_kills(cluster: Cluster) -> None:
    retained(cluster, CYCLES_QUICK, ("upkeep",))
    assert cluster.logged_errors() == []


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_the_same_at_length_and_services_die_too(cluster: Cluster) -> None:
    retained(cluster, CYCLES_CHAOS, VICTIMS)


def test_records_expire_by_their_age_and_a_plan_says_so_before(cluster: Cluster) -> None:
    """What if it were is asked first, of a topic that keeps everything."""
    create(cluster, "timed", retention_ms="-1")
    with Raw.to(cluster.bootstrap) as raw:
        for part in range(PARTITIONS):
            assert send(raw, of_now(10), topic="timed", part=part) == ErrorCode.NONE
        assert answer(cluster, "retention", "apply", "--dry-run", "--topic", "timed")["plan"] == []
        words = ("--retention-ms", "1", "--topic", "timed", "--by", "segment")
        what_if = answer(cluster, "retention", "what-if", *words)
        assert [(row["partition"], row["segment"], row["rule"]) for row in what_if["plan"]] == [
            (part, 0, "time") for part in range(PARTITIONS)
        ]
        assert what_if["bytes_saved"] == what_if["bytes"] > 0
        assert starts_of(cluster, "timed") == dict.fromkeys(range(PARTITIONS), 0)
        create(cluster, "short", retention_ms="1000")
        for part in range(PARTITIONS):
            assert send(raw, of_now(10), topic="short", part=part) == ErrorCode.NONE
        until(
            "records of a second ago have expired",
            lambda: starts_of(cluster, "short") == dict.fromkeys(range(PARTITIONS), 10),
            ANSWER_S,
        )
        below_is_out_of_range(cluster, "short", 0)
        assert send(raw, of_now(5), topic="short", part=0) == ErrorCode.NONE
    checked = cluster.fsck()
    assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}"
