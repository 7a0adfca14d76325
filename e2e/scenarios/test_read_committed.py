"""Real consumers of both isolation levels read a log with transactions: the Java client, librdkafka and franz-go.

No service writes transactions yet, so a test lays the log: transactions of three producers, committed, aborted and
open, in a manifest, in segments and in slices of bundles. Laws: a consumer of committed records gets the records of
committed transactions and of none, in order, and stops at the last stable offset; any other gets every record and no
marker. SQL counts what consumers of committed records read, and fsck's walk agrees with every entry.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, transactional
from kafscale.wire.records import Record, build_batch

from e2e.harness.clients import CLIENTS, Client
from e2e.harness.cluster import KAFSCALE, Cluster

SEGMENTS = 150
PRODUCERS = 3
TOPIC = "paid"
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"

pytestmark = pytest.mark.timeout(900)


@dataclass(slots=True)
class Laid:
    """The offsets of records, and of those that are committed for certain below the last stable offset."""

    every: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    stable_end: int = 0


async def lay(cluster: Cluster) -> Laid:
    etcd, keys = EtcdClient.connect([cluster.inside().etcd]), Keyspace()
    try:
        topic = await create_topic(etcd, keys, TOPIC)
        log = LogBuilder(etcd, keys, cluster.open_store(), topic)
        laid = await _write(log, Random(49))
        await log.record_open()
    finally:
        await etcd.close()
    return laid


async def _write(log: LogBuilder, chance: Random) -> Laid:
    laid, begun, committed, epochs = Laid(), dict[int, list[int]](), set[int](), [0] * PRODUCERS
    offset = 0
    for number in range(SEGMENTS):
        if number == SEGMENTS // 2:
            await log.checkpoint(keep=6)
        log.as_slices = number >= SEGMENTS - 12
        batches = []
        for _ in range(chance.randint(1, 4)):
            producer = chance.randrange(PRODUCERS + 1)
            if producer < PRODUCERS and producer in begun and chance.random() < 0.4:
                commit = chance.random() < 0.5
                raised = epochs[producer] + (producer > 0)  # as an end of the new protocol does
                batches.append(marker(producer, commit=commit, epoch=raised))
                ended = begun.pop(producer)
                committed.update(ended if commit else ())
                epochs[producer] = raised
                offset += 1
                continue
            count = chance.randint(1, 5)
            offsets = list(range(offset, offset + count))
            some = [Record(timestamp=1_000 + at, key=b"k%d" % at, value=b"v" * (at % 90)) for at in offsets]
            if producer < PRODUCERS:
                batches.append(transactional(producer, some, epoch=epochs[producer]))
                begun.setdefault(producer, []).extend(offsets)
            else:
                batches.append(build_batch(some))
                committed.update(offsets)
            laid.every += offsets
            offset += count
        await log.append_raw(batches)
        if len(log.head.tail) > 28:
            await log.checkpoint(keep=20)
    laid.stable_end = log.head.lso
    laid.committed = sorted(at for at in committed if at < laid.stable_end)
    assert begun, "some are open"
    return laid


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("committed")
    cluster = Cluster(data_dir=folder)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def laid(cluster: Cluster) -> Laid:
    return asyncio.run(lay(cluster))


READERS = [client for client in CLIENTS if client.name in ("confluent", "java", "franz-go")]


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("client", [pytest.param(client, id=client.name) for client in READERS])
def test_a_consumer_reads_what_its_isolation_level_says(
    cluster: Cluster, laid: Laid, client: Client, isolation: str
) -> None:
    client.require()
    expected = laid.committed if isolation == COMMITTED else laid.every
    printed = client.run(
        *("--mode", "consume", "--bootstrap", cluster.bootstrap, "--topic", TOPIC, "--partitions", "1"),
        *("--isolation", isolation, "--count", str(len(expected))),
    )
    assert [json.loads(line)["offset"] for line in printed.splitlines()] == expected


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_the_command_consumes_and_queries_what_the_isolation_level_says(
    cluster: Cluster, laid: Laid, isolation: str
) -> None:
    expected = laid.committed if isolation == COMMITTED else laid.every
    line = [*KAFSCALE, "consume", TOPIC, "--exit", "--format", "%o\\n", "--isolation", isolation]
    done = subprocess.run(
        [*line, "--data-dir", str(cluster.data_dir)], capture_output=True, text=True, timeout=300, check=True
    )
    assert list(map(int, done.stdout.split())) == expected
    text = f"select \"offset\" from records where topic = '{TOPIC}' order by 1"
    line = [
        *KAFSCALE,
        "sql",
        text,
        "--isolation",
        isolation,
        "--data-dir",
        str(cluster.data_dir),
        "-o",
        "json",
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=True)
    assert [row["offset"] for row in json.loads(done.stdout)] == expected


def test_fsck_finds_nothing_wrong(cluster: Cluster, laid: Laid) -> None:
    assert laid.stable_end
    done = cluster.fsck()
    assert done.returncode == 0, done.stdout
