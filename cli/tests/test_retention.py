"""`kafscale spark retention` shows a plan by segment or by partition, and names groups that would lose records."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from kafscale.cli.__main__ import app
from kafscale.cli.lake.retention import loss_sentence
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from typer.testing import CliRunner, Result

from .stopped import filling


async def fill(root: Path) -> None:
    """Two topics of one partition: two old segments, and one."""
    async with filling(root) as lake:
        for name, segments in (("a", (10, 20)), ("b", (30,))):
            log = LogBuilder(lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, name))
            for count in segments:
                await log.append(records(count))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    asyncio.run(fill(folder))
    return folder


def run(root: Path, *words: str) -> Result:
    done = CliRunner().invoke(app, ["retention", *words, "--data-dir", str(root)])
    assert done.exit_code == 0, done.output
    return done


def plan(root: Path, *words: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run(root, "--dry-run", "--output", "json", *words).stdout)
    return rows


def test_rows_of_partitions_are_those_of_segments_together(root: Path) -> None:
    segments = plan(root)
    assert [(row["topic"], row["segment"], row["rule"]) for row in segments] == [
        ("a", 0, "time"),
        ("a", 10, "time"),
        ("b", 0, "time"),
    ]
    sizes = [row["bytes"] for row in segments]
    assert plan(root, "--by", "partition") == [
        {
            "topic": topic,
            "partition": 0,
            "segments": count,
            "bytes": size,
            "start": 0,
            "start_after": 30,
        }
        for topic, count, size in (("a", 2, sizes[0] + sizes[1]), ("b", 1, sizes[2]))
    ]


def test_what_would_go_is_told_in_words(root: Path) -> None:
    size = sum(row["bytes"] for row in plan(root))
    done = run(root, "--dry-run", "--topic", "a", "--topic", "b")
    assert done.stderr == f"3 segments of 2 logs, {size:,} bytes; nothing was changed\n"
    done = run(root, "--retention-ms", "-1", "--by", "partition")
    assert done.stderr.splitlines() == [
        f"0 segments of 2 logs, 0 bytes: {size:,} less than now; nothing was changed",
        "no group would lose records that it has not read",
    ]


def test_who_would_lose_records_is_named_once() -> None:
    lost = [{"group": group, "records": 1_000} for group in ("b", "a", "b")]
    assert loss_sentence(lost) == "a, b would lose 3,000 records, not read yet:"
