"""Every client library produces with every codec it has, and each reads what every other one wrote.

Law: what a client read is what another wrote, byte for byte, with headers and timestamps, each record once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from e2e.harness.clients import CLIENTS, CODEC_SETS, FIRST_TIMESTAMP, Client, Record
from e2e.harness.cluster import Cluster

RECORDS = 2_000
PARTITIONS = 3

pytestmark = pytest.mark.timeout(900)
"""More than a build and a run for each set of codecs may take, which have bounds of their own."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("clients")
    env = {
        "KAFSCALE_NUM_PARTITIONS": str(PARTITIONS),
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",  # some clients can read only in a group
    }
    cluster = Cluster(data_dir=folder, env=env)
    cluster.start()
    yield cluster
    cluster.stop()


def topic_of(codecs: Sequence[str]) -> str:
    """All clients write to the same topics, so a reader starts once for each. Codecs that some client cannot read are
    in separate topics."""
    return f"written-with-{'-'.join(codecs)}"


@pytest.fixture(scope="module")
def written(cluster: Cluster) -> dict[str, list[str]]:
    """Which codecs each client has written so far; filled by the producing tests, which run first."""
    return defaultdict(list)


@pytest.mark.parametrize(
    ("client", "codec"),
    [
        pytest.param(client, codec, id=f"{client.name}-{codec}")
        for client in CLIENTS
        for codec in client.codecs
    ],
)
def test_a_client_produces_keyed_records_with_a_codec(
    cluster: Cluster, written: dict[str, list[str]], client: Client, codec: str
) -> None:
    client.require()
    together = next(codecs for codecs in CODEC_SETS if codec in codecs)
    client.produce(cluster.bootstrap, topic_of(together), codec, RECORDS)
    written[client.name].append(codec)


@pytest.mark.parametrize(
    ("reader", "codecs"),
    [
        pytest.param(client, codecs, id=f"{client.name}-{'-'.join(codecs)}")
        for client in CLIENTS
        for codecs in CODEC_SETS
        if set(codecs) <= set(client.decodes)
    ],
)
def test_a_client_reads_what_every_client_wrote(
    cluster: Cluster, written: dict[str, list[str]], reader: Client, codecs: Sequence[str]
) -> None:
    reader.require()
    writers = [client for client in CLIENTS if client.is_installed]
    for writer in writers:
        assert written[writer.name] == list(writer.codecs), "the producing tests did not all run"
    expected = {
        f"{writer.name}-{codec}-{number}".encode(): (writer, number)
        for writer in writers
        for codec in codecs
        if codec in writer.codecs
        for number in range(RECORDS)
    }
    check_records(expected, reader.consume(cluster.bootstrap, topic_of(codecs), len(expected)))


def check_records(expected: Mapping[bytes, tuple[Client, int]], records: list[Record]) -> None:
    """`expected`: the writer and the number of each record, by key."""
    assert Counter(record.key for record in records) == Counter(expected.keys())
    by_partition: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        writer, number = expected[record.key]
        assert record.value == record.key + b":" + b"x" * (number % 200)
        assert record.headers[0] == ("client", writer.name.encode())
        if writer.keeps_timestamps:
            assert record.timestamp == FIRST_TIMESTAMP + number
            assert record.headers == (("client", writer.name.encode()), ("n", str(number).encode()))
        by_partition[record.partition].append(record)
    assert set(by_partition) <= set(range(PARTITIONS))
    for partition in by_partition.values():
        offsets = [record.offset for record in partition]
        assert offsets == list(range(len(offsets))), "offsets are dense and in order"
