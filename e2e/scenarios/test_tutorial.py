"""The tutorial's own commands, as they stand in docs/tutorial.md, and each of their counts beside an oracle's.

Law: a topic is produced, asked in SQL, read by a group, reported, retained, compacted and exported by the page's
commands, none left out; after each step SQL, the commands and a consumer at the front door say what the oracle
knows of the records (`harness/orders.py`). The gate does it with 200,000 records, `make tutorial` with ten million, as
the page has it.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from e2e.harness import orders as oracle
from e2e.harness.cluster import Cluster
from e2e.harness.orders import Numbers, Segment
from e2e.harness.services import until
from e2e.harness.tutorial import COUNT, ROOT, Page

DAY_MS = 86_400_000
SETTLED_S = 300.0
POLL_S = 30.0
COMMANDS_EVERY_S = 3.0  # to ask takes two commands, each with a process of its own
SLICE_S = 0.5
AT_ONCE = 10_000
PAGE_BYTES_MAX = 300_000
SETTINGS = {  # upkeep runs at the start, and not again: what it did would not be left to do
    "KAFSCALE_RETENTION_EVERY_MS": str(DAY_MS),
    "KAFSCALE_COMPACTION_EVERY_MS": str(DAY_MS),
    "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}


@dataclass(slots=True)
class Walk:
    """The page, the cluster it is about, and what is known of the records."""

    page: Page
    cluster: Cluster
    count: int
    orders: list[Numbers]
    customers: list[Numbers]
    now_ms: int = 0  # when the producer began

    @property
    def all_orders(self) -> Numbers:
        return np.arange(self.count)

    def times_ms(self, partition: int) -> Numbers:
        return oracle.times_ms(self.orders[partition], self.count, self.now_ms)

    def segments(self, topic: str) -> list[list[Segment]]:
        rows = self.page.ask_besides(
            f"sql \"select partition, base_offset, last_offset from segments where topic = '{topic}' order by all\""
        )
        return [
            [Segment(base=row["base_offset"], last=row["last_offset"]) for row in some]
            for _, some in groupby(rows, key=lambda row: row["partition"])
        ]

    def counts(self, topic: str) -> list[int]:
        """How many records SQL finds in each partition."""
        rows = self.page.ask_besides(
            f"sql \"select partition, count(*) as n from records where topic = '{topic}' group by 1 order by 1\""
        )
        return [row["n"] for row in rows]


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data", env={**SETTINGS, **getattr(request, "param", {})})
    yield cluster
    cluster.kill()


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    "cluster", [{"KAFSCALE_SEGMENT_BYTES": "8192"}], indirect=True, ids=["small segments"]
)
def test_the_tutorial_with_200_000_records(cluster: Cluster) -> None:
    walk(cluster, 200_000, timeout_s=300.0)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
def test_the_tutorial_with_ten_million_records(cluster: Cluster) -> None:
    walk(cluster, COUNT, timeout_s=1_800.0)


def walk(cluster: Cluster, count: int, timeout_s: float) -> None:
    cluster.start()
    page = Page(
        path=ROOT / "docs" / "tutorial.md",
        folder=cluster.data_dir.parent,
        count=count,
        env={"KAFSCALE_BOOTSTRAP_SERVERS": cluster.bootstrap},
        timeout_s=timeout_s,
    )
    page.open()
    page.passed("make up")
    page.settings(". .venv/bin/activate", "export KAFSCALE_DATA_DIR=data")
    going = Walk(
        page=page,
        cluster=cluster,
        count=count,
        orders=oracle.orders_of(count),
        customers=oracle.customers_of(count),
    )
    produced(going)
    asked(going)
    fallen_behind(going)
    retained(going)
    compacted(going)
    exported(going)
    assert "clean: etcd and the object store agree" in page.run("kafscale fsck")
    assert cluster.logged_errors() == []
    assert page.is_read


def produced(walk: Walk) -> None:
    walk.page.run("kafscale topics create orders")
    began_ms = now_ms()
    told = walk.page.run("python docs/tutorial/produce.py")
    assert f"{walk.count + sum(map(len, walk.customers)):,} records are acknowledged" in told
    firsts = walk.page.run("kafscale consume orders --exit --until +1")
    assert len(firsts.splitlines()) == len(walk.orders)
    walk.page.run("kafscale settle")
    there = read(walk)
    walk.now_ms = min(found.first_ms for found in there) + oracle.SPAN_MS
    assert began_ms <= walk.now_ms <= now_ms()
    for found, numbers in zip(there, walk.orders, strict=True):
        assert np.array_equal(found.offsets, np.arange(len(numbers)))


def asked(walk: Walk) -> None:
    page = walk.page
    rows = page.ask('kafscale sql "select topic, partition, count(*)')
    assert rows == [
        {"topic": topic, "partition": partition, "records": len(numbers)}
        for topic, parts in (("customers", walk.customers), ("orders", walk.orders))
        for partition, numbers in enumerate(parts)
    ]
    rows = page.ask("kafscale sql --file - <<'SQL'\nselect v ->> '$.status'")
    assert {row["status"]: row["records"] for row in rows} == oracle.by_status(walk.all_orders)
    for status, amount in oracle.amounts_by_status(walk.all_orders).items():
        assert [row["amount"] for row in rows if row["status"] == status] == [pytest.approx(amount, abs=1.0)]
    rows = page.ask("kafscale sql --file - <<'SQL'\nwith latest as (")
    tiers = {row["tier"]: (row["customers"], row["delivered"]) for row in rows}
    assert tiers == oracle.delivered_by_tier(walk.count)
    rows = page.ask('kafscale sql "select topic, count(*) as batches')
    assert [(row["topic"], row["records"]) for row in rows] == [
        ("customers", sum(map(len, walk.customers))),
        ("orders", walk.count),
    ]


def fallen_behind(walk: Walk) -> None:
    page = walk.page
    assert page.run("kafscale consume orders --group billing").split() == [str(walk.count // 10)]
    began_ms = now_ms()
    rows = page.ask("kafscale lag\n")
    ended_ms = now_ms()
    assert sum(row["committed"] or 0 for row in rows) == walk.count // 10
    assert len(rows) == len(walk.orders), "partitions without a committed offset count"
    for row in rows:
        numbers, times = walk.orders[row["partition"]], walk.times_ms(row["partition"])
        committed = row["committed"] or 0
        assert (row["records"], row["lost"]) == (len(numbers) - committed, 0)
        unread_ms = int(times[committed])
        assert began_ms - unread_ms <= row["time_ms"] <= ended_ms - unread_ms, row
    page.ask("kafscale lag --html lag.html")
    assert 0 < (page.folder / "lag.html").stat().st_size < PAGE_BYTES_MAX


def retained(walk: Walk) -> None:
    page, segments = walk.page, walk.segments("orders")
    committed = {row["partition"]: row["committed"] or 0 for row in page.ask_besides("lag")}

    def starts(retention_ms: int, at_ms: int) -> list[int]:
        return [
            oracle.start_after(some, walk.times_ms(partition), retention_ms, at_ms)
            for partition, some in enumerate(segments)
        ]

    began_ms = now_ms()
    found = page.ask("kafscale retention what-if --topic orders --retention-ms 86400000")
    between(starts(DAY_MS, began_ms), planned(walk, found["plan"]), starts(DAY_MS, now_ms()))
    assert losses(found) == unread(planned(walk, found["plan"]), committed)
    assert found["losses"], "the page says that the group would lose records"
    page.run("kafscale configs set orders retention.ms=")
    began_ms = now_ms()
    found = page.ask("kafscale retention apply --dry-run")
    between(starts(7 * DAY_MS, began_ms), planned(walk, found["plan"]), starts(7 * DAY_MS, now_ms()))
    assert losses(found) == unread(planned(walk, found["plan"]), committed)
    assert walk.counts("orders") == list(map(len, walk.orders)), "nothing was changed"
    (done,) = page.ask("kafscale retention apply --yes --grace")
    rows = page.ask('kafscale sql "select partition, log_start')
    found_starts = [row["log_start"] for row in rows]
    between(starts(7 * DAY_MS, began_ms), found_starts, starts(7 * DAY_MS, now_ms()))
    gone = sum(
        segment.last < start for some, start in zip(segments, found_starts, strict=True) for segment in some
    )
    assert done["segments"] == gone
    assert done["objects_deleted"] >= 2 * gone, "segments, indexes, and manifests that list nothing else"
    assert done["objects_failed"] == done["objects_absent"] == 0
    left = [len(numbers) - start for numbers, start in zip(walk.orders, found_starts, strict=True)]
    assert [row["records"] for row in rows] == left == walk.counts("orders")
    for row in page.ask_besides("lag"):
        assert row["lost"] == lost(row["committed"], found_starts[row["partition"]]), row


def lost(committed: int | None, start: int) -> int:
    """A group that has committed nothing has lost nothing."""
    return 0 if committed is None else max(0, start - committed)


def losses(found: dict[str, Any]) -> dict[int, int]:
    return {loss["partition"]: loss["records"] for loss in found["losses"]}


def unread(starts: list[int], committed: dict[int, int]) -> dict[int, int]:
    """A partition without a commit is one of which the group has read nothing."""
    rest = {partition: start - committed.get(partition, 0) for partition, start in enumerate(starts)}
    return {partition: count for partition, count in rest.items() if count > 0}


def planned(walk: Walk, rows: list[dict[str, Any]]) -> list[int]:
    starts = {row["partition"]: row["start_after"] for row in rows if row["topic"] == "orders"}
    return [starts.get(partition, 0) for partition in range(len(walk.orders))]


def between(least: list[int], found: list[int], most: list[int]) -> None:
    """Time passes between a command's look at its clock and ours, and a segment may fall due in it."""
    assert all(low <= each <= high for low, each, high in zip(least, found, most, strict=True)), (
        least,
        found,
        most,
    )


def compacted(walk: Walk) -> None:
    page = walk.page
    left = compact(walk, "customers", [oracle.customer_of(numbers) for numbers in walk.customers])
    (row,) = page.ask('kafscale sql "select count(*) as records, count(distinct key)')
    kept = np.concatenate([numbers[offsets] for numbers, offsets in zip(walk.customers, left, strict=True)])
    assert row == {
        "records": len(kept),
        "customers": len(np.unique(oracle.customer_of(kept))),
        "deletions": int(oracle.is_deletion(kept).sum()),
    }
    page.run("kafscale configs set orders cleanup.policy=compact,delete")
    left = compact(walk, "orders", [oracle.order_of(numbers) for numbers in walk.orders])
    kept = np.concatenate([numbers[offsets] for numbers, offsets in zip(walk.orders, left, strict=True)])
    rows = page.ask("kafscale sql --file - <<'SQL'\nselect decode(value) ->> '$.status'")
    assert {row["status"]: row["records"] for row in rows} == oracle.by_status(kept)
    for found, offsets in zip(read(walk), left, strict=True):
        assert np.array_equal(found.offsets, offsets)


def compact(walk: Walk, topic: str, keys: list[Numbers]) -> list[Numbers]:
    """Runs the page's compaction of all but each partition's newest segment; the offsets that are to be left."""
    segments: list[list[Segment]] = []

    def handed_over() -> bool:
        segments[:] = walk.segments(topic)  # slices that are settled meanwhile become fewer
        rows = walk.page.ask_besides(f"compact --dry-run --topic {topic}")["plan"]
        due = {row["partition"]: row["dirty_segments"] for row in rows}
        return [due.get(partition) for partition in range(len(keys))] == [len(some) - 1 for some in segments]

    said = f"all but the newest segments of {topic} have left the tails"
    until(said, handed_over, SETTLED_S, every_s=COMMANDS_EVERY_S)
    rows = walk.page.ask_besides(
        f"sql \"select log_start from partitions where topic = '{topic}' order by partition\""
    )
    starts = [row["log_start"] for row in rows]
    ends = [some[-1].base for some in segments]
    left = [oracle.compacted(*each) for each in zip(keys, starts, ends, strict=True)]
    rows = walk.page.ask(f"kafscale compact --yes --topic {topic}")
    assert {row["partition"]: (row["records"], row["records_after"]) for row in rows} == {
        partition: (end - start, int((left[partition] < end).sum()))
        for partition, (start, end) in enumerate(zip(starts, ends, strict=True))
    }
    assert walk.counts(topic) == list(map(len, left))
    return left


def exported(walk: Walk) -> None:
    page = walk.page
    here = read(walk)
    rows = page.ask("kafscale export orders --to export")
    assert [row["rows"] for row in rows] == [len(found.offsets) for found in here]
    make = producer_of_the_page()
    dataset = ds.dataset(
        page.folder / "export", format="parquet", partitioning="hive", exclude_invalid_files=True
    )
    for partition, found in enumerate(here):
        table = dataset.to_table(
            ["offset", "timestamp", "key", "value"], filter=ds.field("partition") == partition
        ).sort_by("offset")
        assert np.array_equal(table["offset"].to_numpy(), found.offsets)
        numbers = walk.orders[partition][np.array(found.offsets)]
        times = table["timestamp"].to_numpy().astype("datetime64[ms]").astype(np.int64)
        assert np.array_equal(times, oracle.times_ms(numbers, walk.count, walk.now_ms))
        wanted = [make.order(number) for number in numbers.tolist()]
        assert table["key"].to_pylist() == [key.encode() for key, _ in wanted]
        assert table["value"].to_pylist() == [value.encode() for _, value in wanted]
    numbers = np.concatenate([walk.orders[part][np.array(found.offsets)] for part, found in enumerate(here)])
    told = page.run('python -c "import duckdb')
    counts = [int(number) for number in re.findall(r"│ +(\d+) │ +(\d+) │", told)[0]]
    assert counts == [len(numbers), len(np.unique(oracle.order_of(numbers)))]


@dataclass(slots=True)
class Found:
    """What a consumer read of a partition."""

    offsets: list[int]
    first_ms: int = -1


def read(walk: Walk) -> list[Found]:
    """Every record of the orders, by an ordinary client at the front door."""
    consumer = Consumer(
        {
            "bootstrap.servers": walk.cluster.bootstrap,
            "group.id": "oracle",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found = [Found(offsets=[]) for _ in walk.orders]
    left = set(range(len(found)))
    try:
        consumer.assign([TopicPartition("orders", part, OFFSET_BEGINNING) for part in left])
        while left:
            until(
                f"a record or the end of {left}",
                lambda: note(consumer.consume(AT_ONCE, SLICE_S), found, left),
                POLL_S,
            )
    finally:
        consumer.close()
    return found


def note(messages: list[Message], found: list[Found], left: set[int]) -> bool:
    """Whether there were any. A partition whose end they tell is not left."""
    for message in messages:
        part, offset = message.partition(), message.offset()
        assert part is not None
        assert offset is not None
        if (error := message.error()) is None:
            if not found[part].offsets:
                found[part].first_ms = message.timestamp()[1]
            found[part].offsets.append(offset)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left.discard(part)
    return bool(messages)


def producer_of_the_page() -> Any:
    spec = importlib.util.spec_from_file_location("produce", ROOT / "docs" / "tutorial" / "produce.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def now_ms() -> int:
    return time.time_ns() // 1_000_000
