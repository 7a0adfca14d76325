"""`kafscale retention`: the plan by segment or by partition, the groups that have not read it, and the deletion.

`what-if` and `apply` are different commands: `what-if` deletes nothing, whatever options it gets.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kafscale.cli.__main__ import app
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.slots import slot_of
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from typer.testing import CliRunner, Result

from .stopped import filling

UNKNOWN = "kafscale: topic 'nowhere' does not exist; `kafscale topics list` shows what does\n"
BEHIND = "groups that would lose records that they have not read: billing 25"
ANSWER_S = 60.0


async def fill(root: Path) -> None:
    """Two topics of one partition: two old segments, and one. A group has read 5 records of the first."""
    async with filling(root) as lake:
        for name, segments in (("a", (10, 20)), ("b", (30,))):
            topic = await create_topic(lake.etcd, lake.keys, name)
            log = LogBuilder(lake.etcd, lake.keys, lake.store, topic)
            for count in segments:
                await log.append(records(count))
            if name == "a":
                key = lake.keys.committed(slot_of("billing"), "billing", topic.topic_id, 0)
                await lake.etcd.put(key, encode_committed(CommittedOffset(offset=5, commit_ms=1)))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    asyncio.run(fill(folder))
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    asyncio.run(fill(tmp_path / "data"))
    return tmp_path / "data"


def run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["retention", *words, "--data-dir", str(root)])


def plan(root: Path, *words: str) -> dict[str, Any]:
    done = run(root, *words, "--output", "json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_rows_of_partitions_are_those_of_segments_together(root: Path) -> None:
    segments = plan(root, "apply", "--dry-run", "--by", "segment")["plan"]
    assert [(row["topic"], row["segment"], row["rule"]) for row in segments] == [
        ("a", 0, "time"),
        ("a", 10, "time"),
        ("b", 0, "time"),
    ]
    sizes = [row["bytes"] for row in segments]
    assert plan(root, "apply", "--dry-run")["plan"] == [
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


def test_what_would_go_and_who_has_not_read_it_is_said_in_words(root: Path) -> None:
    found = plan(root, "apply", "--dry-run")
    assert found["losses"] == [
        {"group": "billing", "topic": "a", "partition": 0, "committed": 5, "start": 30, "records": 25}
    ]
    size = f"{found['bytes']:,}"
    done = run(root, "apply", "--dry-run", "--topic", "a", "--topic", "b")
    assert done.stderr.splitlines() == [
        f"3 segments of 2 logs, {size} bytes",
        BEHIND,
        "nothing was changed",
    ]
    done = run(root, "what-if", "--retention-ms", "-1")
    assert done.stderr.splitlines() == [
        f"0 segments of 2 logs, 0 bytes: {size} less than now",
        "no group would lose records that it has not read",
        "nothing was changed",
    ]


def test_what_if_deletes_nothing_and_has_no_option_that_does(root: Path) -> None:
    before = objects(root)
    assert plan(root, "what-if", "--retention-ms", "1")["bytes"] > 0
    assert run(root, "what-if").exit_code == 2, "without other limits there is no question"
    assert run(root, "what-if", "--retention-ms", "1", "--yes").exit_code == 2
    assert run(root, "apply", "--retention-ms", "1", "--yes").exit_code == 2
    assert objects(root) == before


def test_without_a_terminal_and_without_yes_nothing_is_deleted(root: Path) -> None:
    before = objects(root)
    done = run(root, "apply", "--grace", "0s")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--yes does it without a question" in done.stderr
    assert objects(root) == before


def test_with_yes_it_deletes_and_names_the_group_that_loses_records(own: Path) -> None:
    done = run(own, "apply", "--yes", "--grace", "0s", "--output", "json")
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert (row["moved"], row["segments"], row["objects_failed"]) == (2, 3, 0)
    assert done.stderr.splitlines()[-1] == BEHIND
    assert objects(own) == []
    again = run(own, "apply", "--yes", "--grace", "0s", "--output", "json")
    assert json.loads(again.stdout)[0]["segments"] == 0


@pytest.mark.parametrize(
    "words", [("apply", "--dry-run"), ("apply", "--yes"), ("what-if", "--retention-ms", "1")]
)
def test_a_topic_that_does_not_exist_is_an_error(root: Path, words: tuple[str, ...]) -> None:
    done = run(root, *words, "--topic", "a", "--topic", "nowhere")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", UNKNOWN)


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_on_a_terminal_the_answer_decides(own: Path, answer: str, code: int) -> None:
    """A real terminal, and standard output into a pipe, which gets the rows alone."""
    before, (ours, theirs) = objects(own), pty.openpty()
    line = ["-m", "kafscale.cli", "retention", "apply", "--grace", "0s", "-o", "json", "--data-dir", str(own)]
    process = subprocess.Popen([sys.executable, *line], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    try:
        shown = read_until(ours, b"[y/N]")
        assert BEHIND in " ".join(shown.split())
        os.write(ours, answer.encode() + b"\n")
        out, _ = process.communicate(timeout=ANSWER_S)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert process.returncode == code, shown
    assert objects(own) == (before if code else [])
    assert [row["segments"] for row in json.loads(out or b"[]")] == ([] if code else [3])


def read_until(terminal: int, end: bytes) -> str:
    found, deadline = b"", time.monotonic() + ANSWER_S
    while end not in found:
        ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert ready, found
        found += os.read(terminal, 4096)
    return found.decode()


def objects(root: Path) -> list[Path]:
    return sorted((root / "objects").rglob("*.kfs"))
