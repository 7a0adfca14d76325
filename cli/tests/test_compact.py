"""`kafscale compact` on a stopped data directory: the plan, the work, and what is left to do then."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafscale.cli.__main__ import app
from kafscale.storage.keys import Keyspace
from kafscale.storage.topics import encode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from typer.testing import CliRunner, Result

from .stopped import filling

SEGMENTS = 4
KEYS = 10


async def fill(root: Path) -> None:
    """Two topics alike, of which one is compacted; the same ten keys in each segment."""
    async with filling(root) as lake:
        for name, policy in (("users", "compact"), ("clicks", "delete")):
            topic = replace(
                await create_topic(lake.etcd, lake.keys, name), configs={"cleanup.policy": policy}
            )
            await lake.etcd.put(lake.keys.topic(name), encode_topic(topic))
            log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
            for number in range(SEGMENTS):
                await log.append(records(KEYS, label=f"s{number}-"))
            await log.checkpoint(keep=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    asyncio.run(fill(tmp_path / "data"))
    return tmp_path / "data"


def run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--data-dir", str(root), "--output", "json"])


def rows(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def count(root: Path, topic: str) -> int:
    (row,) = rows(run(root, "sql", f"select count(*) as found from records where topic = '{topic}'"))
    return int(row["found"])


def test_the_plan_is_shown_then_carried_out_and_nothing_is_due_any_more(root: Path) -> None:
    (due,) = rows(run(root, "compact", "--dry-run"))
    assert (due["topic"], due["partition"], due["reason"], due["dirty_ratio"]) == (
        "users",
        0,
        "dirty ratio",
        1.0,
    )
    assert (due["clean_segments"], due["dirty_segments"]) == (0, SEGMENTS - 1)
    assert count(root, "users") == SEGMENTS * KEYS, "a dry run changes nothing"
    (done,) = rows(run(root, "compact", "--grace", "0s", "--io-bytes-per-s", "10000000"))
    assert (done["segments"], done["segments_after"], done["trouble"]) == (SEGMENTS - 1, 1, None)
    assert (done["records"], done["records_after"]) == ((SEGMENTS - 1) * KEYS, KEYS)
    assert done["bytes"] > done["bytes_after"] > 0
    assert count(root, "users") == 2 * KEYS
    assert count(root, "clicks") == SEGMENTS * KEYS
    assert rows(run(root, "compact", "--dry-run")) == []
    assert rows(run(root, "compact", "--grace", "0s")) == []
    assert rows(run(root, "orphans", "--dry-run")) == []


def test_other_topics_are_left_alone(root: Path) -> None:
    assert rows(run(root, "compact", "--topic", "clicks", "--grace", "0s")) == []
    assert count(root, "users") == SEGMENTS * KEYS


def test_a_log_that_is_damaged_is_told_and_the_exit_code_says_so(root: Path) -> None:
    lost = root / "objects" / Keyspace("default").segment_key("users", 0, KEYS)
    lost.unlink()
    done = run(root, "compact", "--grace", "0s")
    assert done.exit_code == 1
    (row,) = json.loads(done.stdout)
    assert "segment-00000000000000000010.kfs" in row["trouble"]
    assert "1 of the logs that were due could not be compacted" in done.stderr
