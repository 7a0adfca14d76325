"""`kafscale compact` on a stopped data directory: the plan, the work, and what is left to do then."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafscale.cli.__main__ import app
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_of
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
            key = lake.keys.committed(slot_of("readers"), "readers", topic.topic_id, 0)
            await lake.etcd.put(key, encode_committed(CommittedOffset(offset=5, commit_ms=1)))


async def lose_manifest(root: Path, name: str) -> None:
    """One more compacted topic, whose manifest is gone."""
    async with filling(root) as lake:
        topic = replace(await create_topic(lake.etcd, lake.keys, name), configs={"cleanup.policy": "compact"})
        await lake.etcd.put(lake.keys.topic(name), encode_topic(topic))
        log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
        for _ in range(SEGMENTS):
            await log.append(records(KEYS))
        await lake.store.delete((await log.checkpoint(keep=1)).key)


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


def planned(root: Path, command: str) -> dict[str, Any]:
    done = run(root, command, "--dry-run")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def count(root: Path, topic: str) -> int:
    (row,) = rows(run(root, "sql", f"select count(*) as found from records where topic = '{topic}'"))
    return int(row["found"])


def test_the_plan_is_shown_then_carried_out_and_nothing_is_due_any_more(root: Path) -> None:
    shown = planned(root, "compact")
    (due,) = shown["plan"]
    assert (due["topic"], due["partition"], due["reason"], due["dirty_ratio"]) == (
        "users",
        0,
        "dirty ratio",
        1.0,
    )
    assert (due["clean_segments"], due["dirty_segments"]) == (0, SEGMENTS - 1)
    assert count(root, "users") == SEGMENTS * KEYS, "a dry run changes nothing"
    assert [(loss["group"], loss["records"]) for loss in shown["losses"]] == [("readers", 25)]
    (done,) = rows(run(root, "compact", "--yes", "--grace", "0s", "--io-bytes-per-s", "10000000"))
    assert (done["segments"], done["segments_after"], done["trouble"]) == (SEGMENTS - 1, 1, None)
    assert (done["records"], done["records_after"]) == ((SEGMENTS - 1) * KEYS, KEYS)
    assert done["bytes"] > done["bytes_after"] > 0
    assert count(root, "users") == 2 * KEYS
    assert count(root, "clicks") == SEGMENTS * KEYS
    assert planned(root, "compact")["plan"] == []
    assert rows(run(root, "compact", "--yes", "--grace", "0s")) == []
    assert planned(root, "orphans")["plan"] == []


def test_other_topics_are_left_alone(root: Path) -> None:
    assert rows(run(root, "compact", "--yes", "--topic", "clicks", "--grace", "0s")) == []
    assert count(root, "users") == SEGMENTS * KEYS


def test_a_log_that_is_damaged_is_told_and_the_exit_code_says_so(root: Path) -> None:
    lost = root / "objects" / Keyspace("default").segment_key("users", 0, KEYS)
    lost.unlink()
    done = run(root, "compact", "--yes", "--grace", "0s")
    assert done.exit_code == 1
    (row,) = json.loads(done.stdout)
    assert "segment-00000000000000000010.kfs" in row["trouble"]
    assert "1 of the logs that were due could not be compacted" in done.stderr


def test_an_orphan_is_shown_and_then_gone(root: Path) -> None:
    orphan = root / "objects" / Keyspace("default").segment_key("users", 0, 5)
    orphan.write_bytes(b"left behind")
    assert [row["bytes"] for row in planned(root, "orphans")["plan"]] == [11]
    assert run(root, "orphans", "--grace", "0s").exit_code == 2, "nobody can be asked"
    assert orphan.exists()
    done = run(root, "orphans", "--yes", "--grace", "0s")
    assert [row["bytes"] for row in rows(done)] == [11]
    assert done.stderr.splitlines()[:2] == [
        "1 orphans of 2 partitions, 11 bytes",
        "deleted 1 orphans of 2 partitions, 11 bytes",
    ]
    assert not orphan.exists()


def test_a_log_whose_manifest_is_lost_is_named_and_the_others_are_compacted(root: Path) -> None:
    asyncio.run(lose_manifest(root, "states"))
    shown = run(root, "compact", "--dry-run")
    assert (shown.exit_code, [row["topic"] for row in json.loads(shown.stdout)["plan"]]) == (1, ["users"])
    assert "states/0 cannot be read: " in shown.stderr
    done = run(root, "compact", "--yes", "--grace", "0s")
    assert (done.exit_code, [row["topic"] for row in json.loads(done.stdout)]) == (1, ["users"])


@pytest.mark.parametrize("words", [("compact", "--dry-run"), ("compact", "--yes"), ("orphans", "--dry-run")])
def test_a_topic_that_does_not_exist_is_an_error(root: Path, words: tuple[str, ...]) -> None:
    done = run(root, *words, "--topic", "nowhere")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "kafscale: topic 'nowhere' does not exist; `kafscale topics list` shows what does\n"


@pytest.mark.parametrize(("topic", "noticed"), [("clicks", True), ("users", False)])
def test_a_topic_that_is_not_compacted_says_why(root: Path, topic: str, noticed: bool) -> None:
    done = run(root, "compact", "--dry-run", "--topic", topic)
    assert (done.exit_code, "clicks has cleanup.policy=delete, so it is never compacted" in done.stderr) == (
        0,
        noticed,
    )
