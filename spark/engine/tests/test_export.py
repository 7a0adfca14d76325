"""Files that tasks write are those of an export: each record once, none in a hole, and the next run goes on behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from kafscale.lake.catalog import read_lake
from kafscale.lake.export.plan import ExportRefused
from kafscale.lake.export.run import export, remember, resumed
from kafscale_spark.clusters import settings_of
from kafscale_spark.options import parse
from kafscale_spark.parquet import File, done, due, publish, staging, write_split
from kafscale_spark.splits import split
from lakes import World


async def ran(world: World, target: Path, *, until: int | None = None) -> Sequence[File]:
    """What the job does, with tasks that end in any order; published up to file `until`."""
    logs = await read_lake(world.lake)
    settings = settings_of(parse(world.options))
    with staging(target) as folder:
        remember(target, logs, None)
        spans = due(target, logs)
        splits = split([span for span in spans if span.first < span.end], None, 1)
        found = [await asyncio.to_thread(write_split, settings, folder, each) for each in reversed(splits)]
        files = sorted((file for some in found for file in some), key=lambda file: file.path.name)
        publish(folder, target, files[:until])
    return files


def rows(target: Path) -> list[dict[str, Any]]:
    found = ds.dataset(target, partitioning="hive").to_table().to_pylist()
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


async def test_the_files_hold_what_the_local_export_holds_and_a_second_run_what_is_new(
    world: World, tmp_path: Path
) -> None:
    await world.filled("orders", partitions=2)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    assert len(await ran(world, ours)) == 10
    await world.append(world.logs["orders:1"], 7)
    assert [file.rows for file in await ran(world, ours)] == [7]
    assert await ran(world, ours) == []
    logs = await read_lake(world.lake)
    assert [each.end for each in await export(world.lake, logs, theirs)] == [50, 57]
    assert [(each.first, each.end, each.files) for each in done(due(ours, logs), [])] == [
        (50, 50, 0),
        (57, 57, 0),
    ]
    assert rows(ours) == rows(theirs)
    assert len(rows(ours)) == 107


async def test_an_export_that_is_killed_while_it_publishes_goes_on_without_a_hole(
    world: World, tmp_path: Path
) -> None:
    await world.filled("orders")
    target = tmp_path / "out"
    target.mkdir()
    await ran(world, target, until=2)
    assert resumed(target / "topic=orders" / "partition=0") == 20
    (target / ".writing-spark-dead" / "x").mkdir(parents=True)
    assert [file.rows for file in await ran(world, target)] == [10, 10, 10]
    assert [row["offset"] for row in rows(target)] == list(range(50))
    assert not list(target.glob(".writing-*"))


async def test_another_topic_of_the_name_is_refused(world: World, tmp_path: Path) -> None:
    await world.filled("orders", segments=1)
    target = tmp_path / "out"
    target.mkdir()
    await ran(world, target)
    await world.logs["orders:0"].remove_objects()
    await world.filled("orders", segments=1)
    with pytest.raises(ExportRefused, match="made again"):
        await ran(world, target)
