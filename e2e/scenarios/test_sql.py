"""`kafscale sql` beside real clients: no broker is asked, and the rows are those that a consumer reads.

Law: after producers with every codec, SQL gives each record that a consumer read, with its place, time, key, value and
headers, and no other; while the cluster runs, and again after it stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.clients import ALL_CODECS, CLIENTS, Client, Record
from e2e.harness.cluster import KAFSCALE, Cluster

WRITERS = [client for client in CLIENTS if client.name in ("confluent", "kafka-python", "aiokafka")]
READER = WRITERS[0]
RECORDS = 200
PARTITIONS = 3
COMMAND_TIMEOUT_S = 120
AS_WRITTEN = """sql "select count(*) from records where topic like 'a-%'" --data-dir d --output json"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("sql")
    cluster = Cluster(data_dir=folder / "d", env={"KAFSCALE_NUM_PARTITIONS": str(PARTITIONS)})
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture(scope="module")
def read(cluster: Cluster) -> dict[str, list[Record]]:
    """topic -> what a consumer read of it, after every writer has written with every codec."""
    for client in WRITERS:
        for codec in ALL_CODECS:
            client.produce(cluster.bootstrap, topic_of(client), codec, RECORDS)
    count = RECORDS * len(ALL_CODECS)
    return {
        topic_of(client): READER.consume(cluster.bootstrap, topic_of(client), count) for client in WRITERS
    }


def topic_of(client: Client) -> str:
    return f"{'a' if client is READER else 'b'}-{client.name}"


def kafscale(line: str, folder: Path) -> str:
    """Runs a command line as a shell does; what it prints."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"{' '.join(KAFSCALE)} {line}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def ask(cluster: Cluster, text: str) -> list[dict[str, Any]]:
    (cluster.data_dir.parent / "query.sql").write_text(text)
    rows: list[dict[str, Any]] = json.loads(
        kafscale("sql --file query.sql --data-dir d -o json", cluster.data_dir.parent)
    )
    return rows


def found(cluster: Cluster, topic: str) -> list[Record]:
    rows = ask(
        cluster,
        'select partition, "offset", epoch_ms(timestamp) as time, key, value, headers from records '
        f"where topic = '{topic}'",
    )
    return [
        Record(
            partition=row["partition"],
            offset=row["offset"],
            timestamp=row["time"],
            key=row["key"].encode(),
            value=row["value"].encode(),
            headers=tuple((header["key"], header["value"].encode()) for header in row["headers"]),
        )
        for row in rows
    ]


def in_order(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def test_sql_gives_what_a_consumer_reads_while_the_cluster_runs_and_after(
    cluster: Cluster, read: dict[str, list[Record]]
) -> None:
    def compare() -> None:
        for topic, records in read.items():
            assert found(cluster, topic) == in_order(records)
        assert json.loads(kafscale(AS_WRITTEN, cluster.data_dir.parent)) == [
            {"count_star()": RECORDS * len(ALL_CODECS)}
        ]
        codecs = ask(cluster, "select topic, codec, sum(records) as n from batches group by all order by all")
        assert [(row["topic"], row["codec"]) for row in codecs] == [
            (topic, codec) for topic in sorted(read) for codec in sorted(ALL_CODECS)
        ]
        for row in codecs:  # kafka-python leaves a batch as it is when its codec does not shrink it
            assert row["n"] >= RECORDS if row["codec"] == "none" else row["n"] <= RECORDS
        assert sum(row["n"] for row in codecs) == RECORDS * len(ALL_CODECS) * len(read)

    compare()
    assert cluster.stop() == 0
    compare()
