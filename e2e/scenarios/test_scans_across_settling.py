"""Scans by DuckDB and Spark, while owners settle the slices that the scans read and delete their bundles.

Law: a scan returns for each partition the records 0 to n-1, each once and with its value, where n is at least what was
acknowledged when the scan began. No scan fails because objects of its plan were replaced.

Bundles live for about two seconds here. A scan that is held between its plan and its reads, until every bundle of its
plan is deleted, meets the race for certain. The pipe of its output holds DuckDB. Spark plans with one call, and reads
with the next.
"""

from __future__ import annotations

import csv
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.checkers.history import History, Sent
from e2e.harness.bundles import BUNDLES, settle
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.inside import bundles_in, metric
from e2e.harness.load import BUSY_PER_S, Load
from e2e.harness.services import dying_with_parent, until
from e2e.harness.spark_connector import Row, Spark, spark

TOPIC = "orders"
WRITER = "writer"
PARTITIONS = 4
SETTLE_MS, GRACE_MS = 1_000, 200
ROUNDS_DUCKDB, ROUNDS_SPARK, ROUNDS_MAX = 3, 1, 30
BALLAST = "ballast"
"""A topic that DuckDB reads first. Its rows fill the pipe, before DuckDB has read any object of TOPIC."""
BALLAST_RECORDS = 150_000
NEWEST = 300
"""Records of a partition that a plan with a task for each slice reads."""
ANSWER_S = 60.0

pytestmark = pytest.mark.timeout(300)

Found = Mapping[int, list[tuple[int, bytes]]]
"""partition -> offset and value of each record, in order"""


@dataclass(slots=True)
class Site:
    cluster: Cluster
    load: Load

    def bundles(self) -> set[str]:
        return bundles_in(self.cluster.open_store)

    def slices(self) -> int:
        return self.cluster.inside().slices(TOPIC)

    def settled_bytes(self) -> float:
        owners = [each.http_address for each in self.cluster.inside().instances("produce")]
        return sum(sum(metric(each, "kafscale_produce_settled_bytes_total").values()) for each in owners)

    def acknowledged(self) -> dict[int, int]:
        return {partition: count for (_, partition), count in self.load.going_on().items()}

    def everything_moves(self) -> None:
        """Every bundle of this moment is deleted, and owners have settled slices."""
        bundles, settled = self.bundles(), self.settled_bytes()
        until("every bundle is deleted", lambda: not bundles & self.bundles())
        until("slices are settled", lambda: self.settled_bytes() > settled)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A producer writes until the last test stops it."""
    env = {
        **BUNDLES,
        "KAFSCALE_SETTLE_MS": str(SETTLE_MS),
        "KAFSCALE_BUNDLE_GRACE_MS": str(GRACE_MS),
    }
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("scans") / "data", scale={"produce": 2, "fetch": 1}, env=env
    )
    cluster.start()
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS, History(), per_s=BUSY_PER_S)
    try:
        topics = [NewTopic(TOPIC, PARTITIONS), NewTopic(BALLAST, 1)]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for created in admin.create_topics(topics).values():
            created.result(ANSWER_S)
        fill(cluster)
        load.start(WRITER, idempotent=True)
        until("every partition has records", lambda: len(load.going_on()) == PARTITIONS)
        yield Site(cluster, load)
    finally:
        load.stop()
        cluster.kill()


def fill(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 300_000})
    for _ in range(BALLAST_RECORDS):
        producer.produce(BALLAST, b"b" * 10)
    assert producer.flush(ANSWER_S) == 0


def check(found: Found, acknowledged: Mapping[int, int], first: Mapping[int, int] | None = None) -> None:
    """`first`: where the scan began in each partition, if not at 0."""
    for partition in range(PARTITIONS):
        records = found.get(partition, [])
        start = (first or {}).get(partition, 0)
        end = start + len(records)
        assert end >= acknowledged[partition], f"acknowledged records of {partition} are missing"
        due = [(n, Sent(WRITER, n * PARTITIONS + partition, partition).value) for n in range(start, end)]
        wrong = [pair for pair in zip(records, due, strict=True) if pair[0] != pair[1]]
        assert not wrong, f"partition {partition}, first (found, due): {wrong[0]}"


@contextmanager
def duckdb(site: Site, text: str) -> Iterator[subprocess.Popen[str]]:
    """`kafscale sql` on its way. Its rows come through a pipe."""
    line = [*KAFSCALE, "sql", text, "--data-dir", str(site.cluster.data_dir), "--output", "csv"]
    with subprocess.Popen(
        [*dying_with_parent(), *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def rows_of(process: subprocess.Popen[str]) -> Found:
    """Its rows of TOPIC, when it has ended well."""
    output, errors = process.communicate(timeout=ANSWER_S)
    assert (process.returncode, errors) == (0, "")
    rows = (line for line in csv.reader(output.splitlines()) if line[0] == TOPIC)
    return by_partition((int(partition), int(offset), value.encode()) for _, partition, offset, value in rows)


def by_partition(rows: Iterable[tuple[int, int, bytes]]) -> Found:
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for partition, offset, value in rows:
        found[partition].append((offset, value))
    return {partition: sorted(records) for partition, records in found.items()}


def across_settling(site: Site, rounds: int) -> Iterator[Mapping[int, int]]:
    """So many rounds and more, each with what was acknowledged when it began, until no bundle of the first is left."""
    bundles, settled = site.bundles(), site.settled_bytes()
    for number in range(ROUNDS_MAX):
        if number >= rounds and not bundles & site.bundles():
            break
        yield site.acknowledged()
    assert bundles
    assert not bundles & site.bundles()
    until("slices are settled", lambda: site.settled_bytes() > settled)


def test_scans_by_duckdb_one_after_another(site: Site) -> None:
    text = f"select topic, partition, \"offset\", value from records where topic = '{TOPIC}'"
    for acknowledged in across_settling(site, ROUNDS_DUCKDB):
        with duckdb(site, text) as process:
            check(rows_of(process), acknowledged)


def test_a_scan_by_duckdb_whose_bundles_are_all_deleted(site: Site) -> None:
    acknowledged = site.acknowledged()
    assert site.slices()
    with duckdb(site, 'select topic, partition, "offset", value from records') as process:
        assert process.stdout is not None
        until_planned = [process.stdout.readline() for _ in range(2)]
        assert until_planned[1].startswith(BALLAST), "it has to wait for the reader of the pipe"
        site.everything_moves()
        assert process.poll() is None
        check(rows_of(process), acknowledged)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_scans_by_spark(site: Site, tmp_path: Path) -> None:
    """Some minutes, as Spark starts: rounds, and then plans whose bundles are all deleted before the tasks begin."""
    options = {"dataDir": str(site.cluster.data_dir), "subscribe": TOPIC}
    with spark(tmp_path) as session:
        for acknowledged in across_settling(site, ROUNDS_SPARK):
            check(of_spark(session.read("kafscale", options)), acknowledged)
        acknowledged = site.acknowledged()
        assert planned_before_everything_moves(site, session, options) == PARTITIONS
        check(of_spark(session.planned(TOPIC)), acknowledged)
        first = {partition: max(0, count - NEWEST) for partition, count in site.acknowledged().items()}
        cut = {**options, "targetBytes": "1", "startingOffsets": json.dumps({TOPIC: first})}
        acknowledged = site.acknowledged()
        tasks = planned_before_everything_moves(site, session, cut)
        assert tasks > PARTITIONS, "slices of several tasks have to become one segment"
        check(of_spark(session.planned(TOPIC)), acknowledged, first)


def planned_before_everything_moves(site: Site, session: Spark, options: Mapping[str, str]) -> int:
    assert site.slices()
    tasks = session.plan(TOPIC, "kafscale", options)
    site.everything_moves()
    return tasks


def of_spark(rows: Iterable[Row]) -> Found:
    return by_partition((row.partition, row.offset, row.value or b"") for row in rows)


def test_in_the_end_every_record_is_there(site: Site) -> None:
    site.load.stop()
    assert site.load.errors == []
    settle(site.cluster)
    until("no bundle is left", lambda: not site.bundles())
    text = f"select topic, partition, \"offset\", value from records where topic = '{TOPIC}'"
    with duckdb(site, text) as process:
        found = rows_of(process)
    check(found, site.acknowledged())
    assert sum(map(len, found.values())) == len(site.load.history.sent)
    checked = site.cluster.fsck()
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert site.cluster.logged_errors() == []
