"""The history of lag: what is written is read back, from no more files than a question needs."""

from __future__ import annotations

import pytest
from kafscale.lake.catalog import Lake, read_lake, read_topics
from kafscale.lake.lag.history import DAY_MS, HOUR_MS, Files, expire, read_samples, write_sample
from kafscale.lake.lag.outlines import Outlines
from kafscale.lake.lag.owners import Owner
from kafscale.lake.lag.positions import Commit, read_commits
from kafscale.lake.lag.sampler import Sampler
from kafscale.lake.lag.samples import SAMPLES, WHOLE_EVERY_MS, Kind, Memory, Sample, sample, thinned
from kafscale.lake.lag.status import Status
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import CountingStore

T0 = 1_700_000_100_000 // WHOLE_EVERY_MS * WHOLE_EVERY_MS
STEP = 30_000


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def lake(etcd: EtcdClient, keyspace: Keyspace, store: CountingStore) -> Lake:
    return Lake(etcd, keyspace, store)


async def commit(lake: Lake, topic: Topic, group: str, partition: int, offset: int, at_ms: int = T0) -> None:
    key = lake.keys.committed(slot_of(group), group, topic.topic_id, partition)
    await lake.etcd.put(key, encode_committed(CommittedOffset(offset=offset, commit_ms=at_ms)))


async def two_partitions(lake: Lake) -> Topic:
    topic = await create_topic(lake.etcd, lake.keys, "orders", partitions=2)
    for partition in range(2):
        await LogBuilder(lake.etcd, lake.keys, lake.store, topic, partition).append(records(20))
        await commit(lake, topic, "readers", partition, 5)
    return topic


def places(found: object) -> list[tuple[int, int, int]]:
    rows = found.to_pylist()  # type: ignore[attr-defined]
    return [(int(row["ts"].timestamp() * 1000) - T0, row["partition"], row["committed"]) for row in rows]


async def test_between_whole_samples_only_what_changed_is_written(lake: Lake, store: CountingStore) -> None:
    topic = await two_partitions(lake)
    sampler = Sampler(lake)
    await sampler.step(T0)
    await sampler.step(T0 + STEP)
    await commit(lake, topic, "readers", 1, 12)
    await sampler.step(T0 + 2 * STEP)
    await sampler.step(T0 + WHOLE_EVERY_MS)
    found = await read_samples(lake, T0, T0 + WHOLE_EVERY_MS)
    assert places(found) == [
        (0, 0, 5),
        (0, 1, 5),
        (2 * STEP, 1, 12),
        (WHOLE_EVERY_MS, 0, 5),
        (WHOLE_EVERY_MS, 1, 12),
    ]
    whole = await read_samples(lake, T0, T0 + WHOLE_EVERY_MS, [Kind.WHOLE])
    assert [place for place, *_ in places(whole)] == [0, 0, WHOLE_EVERY_MS, WHOLE_EVERY_MS]


@pytest.mark.parametrize("at_ms", [-(1 << 63), -1, T0 * 1_000_000, (1 << 63) - 1])
async def test_a_commit_of_no_date_stops_no_other_groups_history(lake: Lake, at_ms: int) -> None:
    """OffsetCommit 1 takes any 64 bits for a time."""
    topic = await two_partitions(lake)
    await commit(lake, topic, "strange", 0, 9, at_ms)
    await Sampler(lake).step(T0)
    rows = (await read_samples(lake, T0, T0)).to_pylist()
    dates = {(row["group_id"], row["partition"]): row["commit_ts"] is not None for row in rows}
    assert dates == {("readers", 0): True, ("readers", 1): True, ("strange", 0): False, ("strange", 1): False}


async def test_a_question_reads_the_files_of_its_time(lake: Lake, store: CountingStore) -> None:
    await two_partitions(lake)
    for hour in range(5):
        await Sampler(lake).step(T0 + hour * HOUR_MS)
    store.read.clear()
    found = await read_samples(lake, T0 + HOUR_MS, T0 + 3 * HOUR_MS - 1)
    assert sorted({ts for ts, *_ in places(found)}) == [HOUR_MS, 2 * HOUR_MS]
    assert len(store.read) == 2


async def test_a_moment_within_a_second_is_not_lost_by_its_files_name(lake: Lake) -> None:
    await two_partitions(lake)
    await Sampler(lake).step(T0 + 999)
    assert len(await read_samples(lake, T0 + 500, T0 + 1_500)) == 2
    assert len(await read_samples(lake, T0 + 1_000, T0 + 1_500)) == 0


async def test_what_is_too_old_goes_and_nothing_else_does(lake: Lake) -> None:
    await two_partitions(lake)
    for day in range(4):
        await Sampler(lake).step(T0 + day * DAY_MS)
    foreign = f"{lake.keys.lag_prefix()}dt=2001-01-01/hour=00/notes.txt"
    await lake.store.put(foreign, [b"mine"])
    now_ms = T0 + 3 * DAY_MS
    assert await expire(lake, now_ms, 2 * DAY_MS) == 1
    left = await read_samples(lake, T0, now_ms)
    assert sorted({ts for ts, *_ in places(left)}) == [DAY_MS, 2 * DAY_MS, 3 * DAY_MS]
    assert await lake.store.head(foreign) is not None


async def test_a_file_is_read_once_as_long_as_there_is_room_for_it(lake: Lake, store: CountingStore) -> None:
    await two_partitions(lake)
    commits = [Commit(group="g", topic="orders", partition=0, offset=CommittedOffset(offset=5, commit_ms=T0))]
    for minute in range(4):
        rows = sample(await read_lake(lake), commits, {}, T0 + minute * 60_000)
        await write_sample(lake, Sample(kind=Kind.WHOLE, rows=rows), T0 + minute * 60_000)

    async def read(files: Files, since_ms: int = T0) -> int:
        store.forget()
        found = await read_samples(lake, since_ms, T0 + DAY_MS, files=files)
        assert found.num_rows == 4 - (since_ms - T0) // 60_000
        return len(store.read)

    roomy, narrow, none = Files(1 << 20), Files(rows.nbytes + 200), Files(0)
    assert [await read(roomy), await read(roomy), await read(roomy, T0 + 60_000)] == [4, 0, 0]
    assert (await read(narrow), await read(narrow)) in ((4, 3), (4, 4)), "one file has room"
    assert [await read(none), await read(none)] == [4, 4]


async def test_a_file_from_before_transactions_is_read_without_a_stable_end(lake: Lake) -> None:
    await two_partitions(lake)
    found = sample(await read_lake(lake), await read_commits(lake, await read_topics(lake)), {}, T0)
    assert found["stable_end"].to_pylist() == [20, 20]
    await write_sample(lake, Sample(kind=Kind.WHOLE, rows=found.drop_columns(["stable_end"])), T0)
    read = await read_samples(lake, T0, T0)
    assert read["stable_end"].to_pylist() == [None, None]
    assert read.drop_columns(["stable_end"]).equals(found.drop_columns(["stable_end"]))


async def test_no_commits_no_file(lake: Lake) -> None:
    assert await write_sample(lake, Sample(kind=Kind.WHOLE, rows=SAMPLES.empty_table()), T0) is None


async def test_a_row_says_who_reads_there(lake: Lake) -> None:
    await two_partitions(lake)
    logs = await read_lake(lake)
    offset = CommittedOffset(offset=5, commit_ms=T0)
    commits = [Commit(group="readers", topic="orders", partition=p, offset=offset) for p in (0, 1, 7)]
    owner = Owner(member="m-1", client="app", host="/10.0.0.1")
    rows = sample(logs, commits, {("readers", "orders", 1): owner}, T0).to_pylist()
    assert [(row["partition"], row["lag"], row["member"], row["host"]) for row in rows] == [
        (0, 15, None, None),
        (1, 15, "m-1", "/10.0.0.1"),
    ]


def test_a_group_that_comes_back_is_written_again() -> None:
    """Its row equals one from before it left: only the last sample counts."""
    row = {"ts": T0, "group_id": "g", "topic": "t", "partition": 0, "committed": 1, "commit_ts": T0}
    row |= {"log_start": 0, "log_end": 9, "lag": 8}
    table = SAMPLES.empty_table().from_pylist([row], schema=SAMPLES)
    _, memory = thinned(table, Memory(), T0)
    _, memory = thinned(SAMPLES.empty_table(), memory, T0 + 1)
    found, _ = thinned(table, memory, T0 + 2)
    assert found.kind is Kind.CHANGES
    assert len(found.rows) == 1


async def test_a_sampler_that_had_no_turn_learns_what_the_other_saw(lake: Lake) -> None:
    topic = await two_partitions(lake)
    one, other = Sampler(lake), Sampler(lake)
    await one.step(T0)
    for number in range(1, 12):
        await commit(lake, topic, "readers", 0, 5 + number, T0 + number * STEP - 1)
        await other.step(T0 + number * STEP)
    done = await one.step(T0 + 12 * STEP)
    assert [row.complete for row in done.report.partitions] == [1.0, 0.1], "ten commits, of which it saw none"
    assert [row.status for row in done.report.partitions] == [Status.OK, Status.STOP]


async def test_a_sample_and_its_history_pass_over_what_cannot_be_read(lake: Lake) -> None:
    """A head, a topic, an offset, a group and a file of the history: each costs its own rows."""
    topic = await two_partitions(lake)
    bad = await create_topic(lake.etcd, lake.keys, "bad", partitions=2)
    await LogBuilder(lake.etcd, lake.keys, lake.store, bad, 1).append(records(3))
    await commit(lake, bad, "readers", 1, 2)
    await lake.etcd.put(lake.keys.head(bad.topic_id, 0), b"\xff")
    await lake.etcd.put(lake.keys.topic("worse"), b"\xff")
    await lake.etcd.put(lake.keys.group(slot_of("g"), "g"), b"\xff")
    await lake.etcd.put(lake.keys.committed(slot_of("g"), "g", topic.topic_id, 0), b"\xff")
    await lake.store.put(lake.keys.lag_samples_key(T0 - STEP, Kind.WHOLE.value, "a" * 32), [b"no Parquet"])
    sampler = Sampler(lake)
    step = await sampler.step(T0)
    assert [(log.topic.name, log.partition) for log in step.logs] == [
        ("bad", 1),
        ("orders", 0),
        ("orders", 1),
    ]
    assert step.written > 0
    found = await read_samples(lake, T0 - HOUR_MS, T0)
    assert {(row["topic"], row["partition"]) for row in found.to_pylist()} == {
        ("bad", 1),
        ("orders", 0),
        ("orders", 1),
    }


async def test_a_manifest_that_is_gone_for_good_costs_its_partition_alone(lake: Lake) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "orders", partitions=2)
    logs = [LogBuilder(lake.etcd, lake.keys, lake.store, topic, partition) for partition in range(2)]
    for log in logs:
        for _ in range(3):
            await log.append(records(2))
    ref = await logs[0].checkpoint(keep=1)
    await lake.store.delete(ref.key)
    assert [log.partition for log in await Outlines(lake).read({}, 0)] == [1]
