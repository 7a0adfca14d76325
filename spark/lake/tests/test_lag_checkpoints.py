"""Spark's streaming queries count as groups: their checkpoints say where they stand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from kafscale.lake.lag.checkpoints import NoCheckpoint, read_checkpoint

QUERY = "8f2c9a57-6a36-4c5b-9f2e-0a9d3c5a2b11"


def checkpoint(folder: Path, batches: dict[int, list[str]], committed: list[int]) -> Path:
    """As Spark writes it, with checksums beside the files."""
    for name in ("offsets", "commits", "sources", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    for number, sources in batches.items():
        about = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
        (folder / "offsets" / str(number)).write_text("\n".join(["v1", about, *sources]))
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
    for number in committed:
        path = folder / "commits" / str(number)
        path.write_text('v1\n{"nextBatchWatermarkMs":0}')
        os.utime(path, ns=(0, (1_700_000_000_000 + number) * 1_000_000))
        (folder / "commits" / f".{number}.crc").write_bytes(b"crc")
    return folder


def offsets(folder: Path) -> dict[tuple[str, int], int]:
    return {(each.topic, each.partition): each.offset.offset for each in read_checkpoint(folder)}


def test_what_is_read_is_the_newest_batch_that_was_committed(tmp_path: Path) -> None:
    batches = {number: [json.dumps({"orders": {"0": number, "1": 2 * number}})] for number in range(8, 13)}
    folder = checkpoint(tmp_path / "c", batches, [8, 9, 10, 11])
    commits = read_checkpoint(folder)
    assert [(each.group, each.topic, each.partition, each.offset.offset) for each in commits] == [
        (QUERY, "orders", 0, 11),
        (QUERY, "orders", 1, 22),
    ]
    assert {each.offset.commit_ms for each in commits} == {1_700_000_000_011}


def test_our_own_source_and_several_sources_are_understood(tmp_path: Path) -> None:
    sources = [
        json.dumps({"a.b:0": 5, "a.b:12": 6}),
        json.dumps({"orders": {"0": 7}}),
        "-",
        json.dumps({"orders": {"0": 4}}),
        json.dumps({"logOffset": 3}),
        "12",
    ]
    folder = checkpoint(tmp_path / "c", {0: sources}, [0])
    assert offsets(folder) == {("a.b", 0): 5, ("a.b", 12): 6, ("orders", 0): 4}


def test_before_the_first_batch_is_done_nothing_was_read(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", {0: [json.dumps({"orders": {"0": 7}})]}, [])
    assert read_checkpoint(folder) == []


@pytest.mark.parametrize("harm", ["nothing", "no id", "no offsets", "version"])
def test_what_is_no_checkpoint_is_told_in_a_sentence(tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "c"
    if harm != "nothing":
        checkpoint(folder, {0: [json.dumps({"orders": {"0": 7}})]}, [0])
    match harm:
        case "no id":
            (folder / "metadata").write_text("[]")
        case "no offsets":
            (folder / "offsets" / "0").unlink()
        case "version":
            (folder / "offsets" / "0").write_text("v2\n{}\n{}")
    with pytest.raises(NoCheckpoint, match=str(folder)):
        read_checkpoint(folder)
