"""An export holds each record once, whatever ended it and however often it was begun again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from kafscale.lake.catalog import Lake, read_lake, uncommitted
from kafscale.lake.columns import Wanted
from kafscale.lake.export import files
from kafscale.lake.export.plan import STATE_NAME, ExportRefused, file_name, next_offset
from kafscale.lake.export.run import Done, export, locked
from kafscale.lake.scan import placed, scan
from kafscale.lake.sql import QueryFailed
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore, ObjectNotFound
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional
from kafscale.wire.records import Codec

PLACES = ds.partitioning(pa.schema({"topic": pa.string(), "partition": pa.int32()}), flavor="hive")


@pytest.fixture
def lake(etcd: EtcdClient, keyspace: Keyspace) -> Lake:
    return Lake(etcd, keyspace, MemoryStore())


async def built(lake: Lake, name: str = "orders", segments: int = 6) -> LogBuilder:
    log = LogBuilder(lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, name))
    for number in range(segments):
        await log.append(
            records(10, timestamp=10_000 * number, label=f"{name}{number}-"), codec=Codec(number % 5)
        )
    return log


async def run(lake: Lake, folder: Path, **how: Any) -> list[Done]:
    return await export(lake, await read_lake(lake), folder, **how)


def exported(folder: Path) -> pa.Table:
    """As any reader of Hive layouts sees the folder."""
    found = ds.dataset(folder, partitioning=PLACES).to_table()
    names = ["topic", "partition", *files.SCHEMA.names]
    return found.select(names).sort_by(
        [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    )


async def scanned(lake: Lake) -> pa.Table:
    batches = [
        placed(batch, log) for log in await read_lake(lake) async for batch in scan(lake, log, Wanted())
    ]
    return pa.Table.from_batches(batches)


def names(folder: Path, topic: str = "orders") -> list[str]:
    return sorted(file.name for file in (folder / f"topic={topic}" / "partition=0").iterdir())


async def test_an_export_is_the_records_and_a_second_one_what_is_new(lake: Lake, tmp_path: Path) -> None:
    log = await built(lake)
    await built(lake, "other", segments=1)
    seen: list[int] = []
    done = await run(lake, tmp_path, rows_max=25, report=seen.append)
    assert exported(tmp_path).equals(await scanned(lake))
    assert names(tmp_path) == [file_name(0, 30), file_name(30, 60)]
    assert [(each.topic, each.first, each.end, each.files, each.rows) for each in done] == [
        ("orders", 0, 60, 2, 60),
        ("other", 0, 10, 1, 10),
    ]
    assert sum(seen) == 70
    assert sum(each.bytes for each in done) == sum(
        file.stat().st_size for file in tmp_path.rglob("*.parquet")
    )
    await log.append(records(7, label="new"))
    (again, other) = await run(lake, tmp_path)
    assert (again.first, again.end, again.rows, other.files) == (60, 67, 7, 0)
    assert exported(tmp_path).equals(await scanned(lake))


async def test_rows_wait_for_their_row_group_and_no_longer(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "GROUP_ROWS", 20)
    await built(lake)
    await run(lake, tmp_path)
    (name,) = names(tmp_path)
    found = pq.ParquetFile(tmp_path / "topic=orders" / "partition=0" / name).metadata
    groups = [found.row_group(n) for n in range(found.num_row_groups)]
    assert [group.num_rows for group in groups] == [20, 20, 20]
    told = [{group.column(n).path_in_schema: group.column(n).statistics for n in (0, 1)} for group in groups]
    assert [(each["offset"].min, each["offset"].max) for each in told] == [(0, 19), (20, 39), (40, 59)]
    assert all(each["timestamp"].has_min_max for each in told)


async def test_a_condition_in_sql_chooses_the_records(lake: Lake, tmp_path: Path) -> None:
    await built(lake)
    (done,) = await run(lake, tmp_path, where="\"offset\" % 10 = 3 and key = 'k3'::blob -- thirds")
    everything = await scanned(lake)
    wanted = everything.filter(
        pc.equal(pc.subtract(everything["offset"], pc.multiply(pc.divide(everything["offset"], 10), 10)), 3)
    )
    assert exported(tmp_path).equals(wanted)
    assert (done.rows, done.end, names(tmp_path)) == (6, 60, [file_name(0, 60)])
    with pytest.raises(ExportRefused, match="where"):
        await run(lake, tmp_path)


async def test_a_condition_that_is_none_is_told_and_leaves_nothing(lake: Lake, tmp_path: Path) -> None:
    await built(lake)
    with pytest.raises(QueryFailed, match="nothing"):
        await run(lake, tmp_path, where="nothing = 1")
    assert list(tmp_path.rglob("*.parquet")) == []
    (done,) = await run(lake, tmp_path, where='"offset" = 1')
    assert (done.rows, len(names(tmp_path))) == (1, 1)


async def test_a_record_that_is_not_json_is_told_with_the_remedy(lake: Lake, tmp_path: Path) -> None:
    await built(lake)
    with pytest.raises(QueryFailed, match=r"try\(value ->> '\$.name'\) gives null"):
        await run(lake, tmp_path, where="value ->> '$.a' = '1'")


@pytest.mark.parametrize("step", range(12))
async def test_killed_at_any_step_it_goes_on_where_it_was(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each file is made durable, renamed, and its name made durable; the export dies at one of these."""

    class Killed(BaseException):
        pass

    await built(lake)
    left = [step]

    def dying(call: Any) -> Any:
        def wrapped(*args: Any) -> Any:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return call(*args)

        return wrapped

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", dying(os.fsync))
        patched.setattr(Path, "rename", dying(Path.rename))
        patched.setattr(files.PartitionFiles, "discard", lambda _: None)  # a killed process tidies nothing up
        with pytest.raises(Killed):
            await run(lake, tmp_path, rows_max=20)
    await run(lake, tmp_path, rows_max=20)
    assert exported(tmp_path).equals(await scanned(lake))
    assert list(tmp_path.rglob(".*")) == []


async def test_what_was_exported_stays_when_retention_takes_it_from_the_log(
    lake: Lake, tmp_path: Path
) -> None:
    log = await built(lake)
    before = await scanned(lake)
    await run(lake, tmp_path)
    await log.append(records(10))
    await log.retain_from(65)
    (done,) = await run(lake, tmp_path)
    assert (done.first, done.end) == (65, 70)
    assert exported(tmp_path).slice(0, 60).equals(before)


async def test_reading_that_fails_leaves_whole_files_alone(lake: Lake, tmp_path: Path) -> None:
    await built(lake)
    (log,) = await read_lake(lake)
    await lake.store.delete(lake.place_of(log, log.segments[4]).key)
    with pytest.raises(ObjectNotFound):
        await export(lake, [log], tmp_path, rows_max=20)
    assert names(tmp_path) == [file_name(0, 20), file_name(20, 40)]


async def test_folders_that_are_none_of_this_export_are_refused(lake: Lake, tmp_path: Path) -> None:
    log = await built(lake)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    with pytest.raises(ExportRefused, match="not empty"):
        await run(lake, foreign)
    target = tmp_path / "target"
    with locked(target), pytest.raises(ExportRefused, match="another export"):
        await run(lake, target)
    await run(lake, target)
    await lake.etcd.delete(lake.keys.topic("orders"))
    await log.remove_objects()
    await built(lake)
    with pytest.raises(ExportRefused, match="made again"):
        await run(lake, target)
    (target / STATE_NAME).write_text("{}")
    with pytest.raises(ExportRefused, match="cannot be read"):
        await run(lake, target)


async def test_a_folder_is_of_one_isolation_level(lake: Lake, tmp_path: Path) -> None:
    log = LogBuilder(lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, "paid"))
    await log.append_raw([transactional(7, records(2)), transactional(8, records(1))])
    await log.append_raw([marker(7, commit=False), transactional(9, records(1))])
    logs = await read_lake(lake)
    (committed,) = await export(lake, logs, tmp_path / "committed")
    (all_of_it,) = await export(lake, uncommitted(logs), tmp_path / "all")
    assert (committed.end, committed.rows, all_of_it.end, all_of_it.rows) == (2, 0, 5, 4)
    await log.append_raw([marker(8, commit=True), marker(9, commit=True)])
    logs = await read_lake(lake)
    (committed,) = await export(lake, logs, tmp_path / "committed")
    assert (committed.end, committed.rows) == (7, 2)
    with pytest.raises(ExportRefused, match="isolation level read_committed"):
        await export(lake, uncommitted(logs), tmp_path / "committed")
    with pytest.raises(ExportRefused, match="isolation level read_uncommitted"):
        await export(lake, logs, tmp_path / "all")


def test_files_that_overlap_are_noticed() -> None:
    assert next_offset([]) == 0
    assert next_offset([file_name(30, 60), file_name(0, 20)]) == 60
    with pytest.raises(ExportRefused, match="another file covers"):
        next_offset([file_name(0, 20), file_name(19, 60)])
    with pytest.raises(ExportRefused, match="not of an export"):
        next_offset(["part-0.parquet"])
