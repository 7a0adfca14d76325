"""`kafscale backup` and `kafscale fsck --roll-forward` on a stopped data directory, as an operator types them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from kafscale.cli.__main__ import app
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from typer.testing import CliRunner, Result

from .stopped import filling


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"

    async def fill() -> None:
        async with filling(root) as lake:
            log = LogBuilder(
                lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, "orders")
            )
            await log.append(records(10))
            await log.append_with(batch=records(5))

    asyncio.run(fill())
    return root


def run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--data-dir", str(root)])


def test_a_snapshot_is_stored_listed_and_written_to_a_file(data: Path, tmp_path: Path) -> None:
    made = run(data, "backup", "create")
    assert (made.exit_code, "0 old snapshots deleted" in made.stderr) == (0, True), made.output
    shutil.rmtree(data / "etcd")  # the other two commands do not need it
    listed = run(data, "backup", "list", "--output", "csv")
    (header, row) = listed.stdout.split()
    assert header == "time,bytes,parts"
    time, size, _ = row.split(",")
    file = tmp_path / "snapshot.db"
    written = run(data, "backup", "get", str(file), "--time", time)
    assert (written.exit_code, file.stat().st_size) == (0, int(size)), written.output
    again = run(data, "backup", "get", str(file))
    assert (again.exit_code, "File exists" in again.stderr) == (1, True), again.output
    none = run(data, "backup", "get", str(tmp_path / "other.db"), "--time", "2026-01-01T00:00:00Z")
    assert (none.exit_code, "there is no such snapshot" in none.stderr) == (1, True), none.output


def test_a_part_that_was_changed_leaves_no_file(data: Path, tmp_path: Path) -> None:
    run(data, "backup", "create")
    (part,) = (data / "objects" / ".kafscale-backup").rglob("part-00000")
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    file = tmp_path / "snapshot.db"
    damaged = run(data, "backup", "get", str(file))
    assert (damaged.exit_code, file.exists()) == (1, False), damaged.output


def test_a_roll_forward_shows_asks_writes_and_checks(data: Path) -> None:
    shutil.rmtree(data / "etcd")
    (data / "etcd").mkdir()
    shown = run(data, "fsck", "--roll-forward", "--dry-run")
    assert (shown.exit_code, "nothing was changed" in shown.stderr) == (0, True), shown.output
    assert "TOPIC orders is created" in shown.stderr
    asked = run(data, "fsck", "--roll-forward")
    assert (asked.exit_code, "nobody can be asked here" in asked.stderr) == (2, True), asked.output
    assert run(data, "fsck").stdout.startswith("0 topics")
    written = run(data, "fsck", "--roll-forward", "--yes")
    assert (written.exit_code, written.stderr.endswith("roll-forward: done\n")) == (0, True), written.output
    assert "1 topic, 1 partition with a head, 2 segments, 15 records" in written.stdout
    assert "clean: etcd and the object store agree" in written.stdout
    again = run(data, "fsck", "--roll-forward", "--yes", "--output", "json")
    assert (again.exit_code, "nothing to change" in again.stderr) == (0, True), again.output
    assert json.loads(again.stdout)["clean"]


@pytest.mark.parametrize("words", [("--dry-run",), ("--yes",), ("--topic-name", f"{'0' * 32}=orders")])
def test_options_of_a_roll_forward_need_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    refused = run(tmp_path, "fsck", *words)
    assert (refused.exit_code, "need --roll-forward" in refused.stderr) == (2, True), refused.output


@pytest.mark.parametrize(
    "word", ["orders", "0=orders", f"{'0' * 32}=", f"{'0' * 32}=a/b", f"{'z' * 32}=orders"]
)
def test_a_name_needs_an_id_and_has_to_be_legal(tmp_path: Path, word: str) -> None:
    refused = run(tmp_path, "fsck", "--roll-forward", "--topic-name", word)
    assert (refused.exit_code, "a topic id of 32" in refused.stderr) == (2, True), refused.output
