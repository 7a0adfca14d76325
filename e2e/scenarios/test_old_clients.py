"""Clients of Kafka 0.8 to 0.10 write and read message sets, next to clients of today, with each codec they have.

Law: what a client read is what another wrote, byte for byte, each record once and at dense offsets; with its time, if
both the writer's and the reader's messages have one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.clients import FIRST_TIMESTAMP, NEW_CLIENT, OLD_CLIENTS, OLD_CODECS, Client, Record
from e2e.harness.cluster import Cluster

RECORDS = 2_000
TOTAL = RECORDS * len(OLD_CODECS)
PARTITIONS = 3
NO_TIMESTAMP = -1

pytestmark = pytest.mark.timeout(300)

old_clients = pytest.mark.parametrize("client", [pytest.param(each, id=each.name) for each in OLD_CLIENTS])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("old-clients")
    cluster = Cluster(data_dir=folder, env={"KAFSCALE_NUM_PARTITIONS": str(PARTITIONS)})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def from_today(cluster: Cluster) -> str:
    """The topic that a client of today wrote, with each codec."""
    return written(cluster, NEW_CLIENT)


def written(cluster: Cluster, client: Client) -> str:
    """A topic with the client's records of each codec."""
    topic = f"from-{client.name}"
    for codec in OLD_CODECS:
        client.produce(cluster.bootstrap, topic, codec, RECORDS)
    return topic


@old_clients
def test_what_an_old_client_wrote_is_read_by_it_and_by_one_of_today(cluster: Cluster, client: Client) -> None:
    client.require()
    topic = written(cluster, client)
    for reader in (client, NEW_CLIENT):
        check(client, reader.consume(cluster.bootstrap, topic, TOTAL), timed=client.keeps_timestamps)


@old_clients
def test_what_a_client_of_today_wrote_is_read_by_an_old_one(
    cluster: Cluster, from_today: str, client: Client
) -> None:
    client.require()
    records = client.consume(cluster.bootstrap, from_today, TOTAL)
    check(NEW_CLIENT, records, timed=client.keeps_timestamps)


def check(writer: Client, records: list[Record], *, timed: bool) -> None:
    numbers = {f"{writer.name}-{codec}-{i}".encode(): i for codec in OLD_CODECS for i in range(RECORDS)}
    assert Counter(record.key for record in records) == Counter(numbers.keys())
    by_partition: dict[int, list[int]] = defaultdict(list)
    for record in records:
        i = numbers[record.key]
        assert record.value == record.key + b":" + b"x" * (i % 200)
        assert record.timestamp == (FIRST_TIMESTAMP + i if timed else NO_TIMESTAMP)
        by_partition[record.partition].append(record.offset)
    assert set(by_partition) <= set(range(PARTITIONS))
    for offsets in by_partition.values():
        assert offsets == list(range(len(offsets))), "offsets are dense and in order"
