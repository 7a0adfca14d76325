"""Transactions of real producers, end to end.

Laws: a consumer of committed records gets the records of committed transactions and no others, from every offset, also
after slices were settled; a second producer with the id fences the first; a producer that dies is aborted after its
timeout; a transaction whose owner or whose coordinator dies in the middle completes; the last stable offset stands at
the oldest open transaction while others commit.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from random import Random

import pytest

from e2e.harness.bundles import settle
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.services import until
from e2e.harness.transactional import (
    COMMITTED,
    CONFLUENT,
    JAVA,
    JAVA_OLDER,
    UNCOMMITTED,
    Library,
    Refused,
    producer,
    read,
    stable_end,
)

pytestmark = pytest.mark.timeout(600)

LIBRARIES = [pytest.param(each, id=each.name) for each in (JAVA, CONFLUENT)]
"""Of the protocol of KIP-890, and of the one before it."""
OLDER = pytest.param(JAVA_OLDER, id=JAVA_OLDER.name, marks=pytest.mark.chaos)
FENCED = ("ProducerFencedException", "InvalidProducerEpochException", "_FENCED")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("transactions"),
        env={"KAFSCALE_NUM_PARTITIONS": "1"},
    )
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("library", [*LIBRARIES, OLDER])
def test_readers_get_what_was_committed(cluster: Cluster, library: Library) -> None:
    topic, chance = f"both-{library.name}", Random(49)
    every: list[tuple[int, str]] = []
    committed: list[tuple[int, str]] = []
    with producer(library, cluster.bootstrap, topic) as writer:
        for number in range(20):
            values = [f"{number}.{n}" for n in range(chance.randint(1, 100))]
            written = list(zip(writer.write(topic, 0, *values), values, strict=True))
            every += written
            if number % 2:
                writer.abort()
            else:
                writer.commit()
                committed += written
    end = every[-1][0] + 2  # the marker has an offset too
    until("every transaction is ended", lambda: stable_end(cluster.bootstrap, topic) == end)
    for settled in (False, True):
        if settled:
            settle(cluster, topic)
        assert read(cluster.bootstrap, topic, COMMITTED) == committed
        assert read(cluster.bootstrap, topic, UNCOMMITTED) == every
        for begin in chance.sample(range(end), 12):
            expected = [each for each in committed if each[0] >= begin]
            assert read(cluster.bootstrap, topic, COMMITTED, begin=begin) == expected
    text = f"select count(*) as n from records where topic = '{topic}'"
    line = [*KAFSCALE, "sql", text, "--data-dir", str(cluster.data_dir), "-o", "json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout) == [{"n": len(committed)}]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_second_producer_with_the_id_fences_the_first(cluster: Cluster, library: Library) -> None:
    topic = f"fence-{library.name}"
    with producer(library, cluster.bootstrap, topic) as first:
        first.write(topic, 0, "first")
        with producer(library, cluster.bootstrap, topic) as second:
            (offset,) = second.write(topic, 0, "second")
            with pytest.raises(Refused) as refused:
                first.commit()
            assert refused.value.name in FENCED
            second.commit()
    until("both are ended", lambda: stable_end(cluster.bootstrap, topic) == offset + 2)
    assert read(cluster.bootstrap, topic, COMMITTED) == [(offset, "second")]


def test_the_transaction_of_a_dead_producer_is_aborted_after_its_timeout(cluster: Cluster) -> None:
    topic = "dead"
    with producer(CONFLUENT, cluster.bootstrap, topic, timeout_ms=3_000) as writer:
        (offset,) = writer.write(topic, 0, "nobody")
    assert stable_end(cluster.bootstrap, topic) == offset
    until("the transaction is aborted", lambda: stable_end(cluster.bootstrap, topic) == offset + 2)
    assert read(cluster.bootstrap, topic, COMMITTED) == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_owner_that_dies_before_the_end_takes_nothing_with_it(cluster: Cluster, library: Library) -> None:
    topic = f"owner-{library.name}"
    with producer(library, cluster.bootstrap, topic) as writer:
        (offset,) = writer.write(topic, 0, "kept")
        cluster.kill_one("produce", 0)
        writer.commit()
        (later,) = writer.write(topic, 0, "later")
        writer.commit()
    until("both are ended", lambda: stable_end(cluster.bootstrap, topic) == later + 2)
    assert read(cluster.bootstrap, topic, COMMITTED) == [(offset, "kept"), (later, "later")]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_decision_outlives_its_coordinator(cluster: Cluster, library: Library) -> None:
    topic = f"coordinator-{library.name}"
    with producer(library, cluster.bootstrap, topic) as writer:
        (offset,) = writer.write(topic, 0, "decided")
        stopped = cluster.signal("produce", signal.SIGSTOP)
        try:
            writer.commit()
            assert stable_end(cluster.bootstrap, topic) == offset
            cluster.kill_one("coordinator", 0)
        finally:
            cluster.signal("produce", signal.SIGCONT, cluster.pids("produce").index(stopped))
        until("it is ended", lambda: stable_end(cluster.bootstrap, topic) == offset + 2)
    assert read(cluster.bootstrap, topic, COMMITTED) == [(offset, "decided")]


def test_readers_of_committed_records_wait_for_the_oldest_transaction(cluster: Cluster) -> None:
    topic = "long"
    with (
        producer(JAVA, cluster.bootstrap, "long") as long,
        producer(CONFLUENT, cluster.bootstrap, "short") as short,
    ):
        (first,) = long.write(topic, 0, "early")
        (second,) = short.write(topic, 0, "late")
        short.commit()
        marker = second + 1
        until("the short one has its marker", lambda: len(read(cluster.bootstrap, topic, UNCOMMITTED)) == 2)
        assert stable_end(cluster.bootstrap, topic) == first
        assert read(cluster.bootstrap, topic, COMMITTED) == []
        long.commit()
        until("both are ended", lambda: stable_end(cluster.bootstrap, topic) == marker + 2)
    assert read(cluster.bootstrap, topic, COMMITTED) == [(first, "early"), (second, "late")]


def test_nothing_of_it_is_damaged(cluster: Cluster) -> None:
    """After all of the above."""
    done = cluster.fsck()
    assert done.returncode == 0, done.stdout
