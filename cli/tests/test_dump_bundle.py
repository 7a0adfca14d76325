"""`kafscale dump` shows what a bundle holds, and of a damaged one each damage and what is left."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from kafscale.cli.__main__ import app
from kafscale.log.bundle import ENTRY_SIZE, TRAILER_SIZE, BuiltBundle, Slice, build_bundle, new_bundle_id
from kafscale.log.segment import BatchInfo, build_segment
from kafscale.storage.keys import TopicId
from kafscale.wire.records import Record, build_batch, read_batch_header
from typer.testing import CliRunner, Result

TIME_MS = 1_769_846_400_123
TOPICS = (TopicId(b"a" * 16), TopicId(b"b" * 16))
EACH = 4


def piece(topic: TopicId, partition: int, base: int) -> Slice:
    """Two batches."""
    parts = [
        build_batch(
            [Record(timestamp=TIME_MS, key=b"k", value=b"v%d" % (at + n)) for n in range(EACH)],
            base_offset=at,
            leader_epoch=3,
        )
        for at in (base, base + EACH)
    ]
    heads = [read_batch_header(part) for part in parts]
    infos = [BatchInfo(head.base_offset, head.last_offset, head.size, EACH) for head in heads]
    segment = build_segment(base, infos, parts, TIME_MS)
    return Slice(
        topic_id=topic, partition=partition, leader_epoch=3, segment=segment, min_ts=TIME_MS, max_ts=TIME_MS
    )


BUILT: BuiltBundle = build_bundle(
    new_bundle_id(TIME_MS, bytes(10)), [piece(TOPICS[0], 0, 40), piece(TOPICS[1], 5, 0)], TIME_MS
)
FIRST, SECOND = BUILT.entries


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / f"{BUILT.id.hex()}.kfb"
    path.write_bytes(b"".join(BUILT.body))
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["dump", *map(str, words)])


def document(*words: object) -> dict[str, Any]:
    result = run(*words, "--output", "json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == bool(found["problems"]), result.output
    return found


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def places(found: dict[str, Any]) -> list[tuple[object, ...]]:
    return [(row["topic_id"], row["partition"], row["offset"], row["last_offset"]) for row in found["slices"]]


BOTH = [(TOPICS[0].hex(), 0, 40, 47), (TOPICS[1].hex(), 5, 0, 7)]


def test_a_whole_bundle(bundle: Path) -> None:
    found = document(bundle)
    assert found["problems"] == []
    assert found["header"] == {"id": BUILT.id.hex(), "created": "2026-01-31T08:00:00.123+00:00"}
    assert found["directory"] == {"position": SECOND.end, "entries": 2, "crc32c": found["crc32c"]}
    assert places(found) == BOTH
    first = found["slices"][0]
    assert (first["position"], first["size"], first["crc32c"]) == (32, FIRST.size, FIRST.crc32c)
    assert (first["records"], first["batches"], first["leader_epoch"], first["crc"]) == (8, 2, 3, "right")
    assert [(row["offset"], row["crc"]) for row in first["content"]] == [(40, "right"), (44, "right")]


def test_the_records_of_each_slice(bundle: Path) -> None:
    rows = document(bundle, "--records")["records"]
    assert [(row["partition"], row["offset"]) for row in rows] == [
        *((0, offset) for offset in range(40, 48)),
        *((5, offset) for offset in range(8)),
    ]
    assert rows[0]["topic_id"] == TOPICS[0].hex()
    assert (rows[0]["value"], rows[-1]["value"]) == ("v40", "v7")
    listed = list(csv.DictReader(io.StringIO(run(bundle, "-r", "-o", "csv").stdout)))
    assert [(int(row["partition"]), row["value"]) for row in listed] == [
        (row["partition"], row["value"]) for row in rows
    ]
    slices = list(csv.DictReader(io.StringIO(run(bundle, "-o", "csv").stdout)))
    assert [int(row["position"]) for row in slices] == [FIRST.position, SECOND.position]


def test_the_same_for_people(bundle: Path) -> None:
    result = run(bundle, "-r")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"{bundle}: {BUILT.size:,} bytes"
    assert lines[1] == f"header: bundle {BUILT.id.hex()}, made 2026-01-31T08:00:00.123+00:00"
    assert lines[2].startswith(f"directory: 2 entries at byte {SECOND.end}, CRC-32C 0x")
    assert f"slice at byte {SECOND.position}:" in lines
    assert lines[-1] == "whole: every checksum is right"


def test_a_flipped_byte_in_a_slice_concerns_that_slice(bundle: Path) -> None:
    flip(bundle, SECOND.position + 110)
    found = document(bundle)
    assert [row["crc"] for row in found["slices"]] == ["right", "wrong"]
    assert all(problem.startswith(f"slice at byte {SECOND.position}: ") for problem in found["problems"])
    assert any("footer: its CRC-32C is" in problem for problem in found["problems"])


def test_a_flipped_byte_in_the_directory_is_found_twice_and_all_is_shown(bundle: Path) -> None:
    """By the checksum, and by the slice that says otherwise."""
    flip(bundle, SECOND.end + 31)  # the lowest byte of the first entry's base offset
    found = document(bundle)
    checksum, entry = found["problems"]
    assert checksum.startswith("directory: checksum does not match")
    assert entry == "slice at byte 32: base offset in the directory is 41, that of the slice 40"
    assert [row["crc"] for row in found["slices"]] == ["right", "right"]
    assert "(wrong, it is 0x" in run(bundle).stdout


@pytest.mark.parametrize(
    ("at", "fact"),
    [
        (23, "leader epoch"),
        (39, "last offset"),
        (51, "CRC-32C"),
        (55, "records"),
        (59, "batches"),
        (75, "largest timestamp"),
    ],
)
def test_each_fact_of_an_entry_is_compared_with_the_slice(bundle: Path, at: int, fact: str) -> None:
    flip(bundle, SECOND.end + ENTRY_SIZE + at)
    problems = document(bundle)["problems"]
    assert any(
        problem.startswith(f"slice at byte {SECOND.position}: {fact} in the directory is")
        for problem in problems
    ), problems


def test_without_a_trailer_the_slices_are_found_and_their_partitions_are_unknown(bundle: Path) -> None:
    flip(bundle, -1)
    found = document(bundle, "--records")
    assert (found["directory"], len(found["records"])) == (None, 16)
    assert places(found) == [(None, None, 40, 47), (None, None, 0, 7)]
    (problem,) = found["problems"]
    assert problem.startswith("trailer: wrong magic")


@pytest.mark.parametrize("left", [60, 150, SECOND.size - 4])
def test_of_a_bundle_that_was_cut_the_slices_in_front_of_the_cut_are_whole(bundle: Path, left: int) -> None:
    bundle.write_bytes(bundle.read_bytes()[: SECOND.position + left])
    found = document(bundle, "--records")
    assert [(row["size"], row["crc"]) for row in found["slices"]] == [(FIRST.size, "right"), (left, "wrong")]
    assert [row["offset"] for row in found["records"]][:8] == list(range(40, 48))
    assert found["problems"][0].startswith("trailer: wrong magic")


def test_what_is_no_bundle(bundle: Path) -> None:
    bundle.write_bytes(b"something else")
    assert [problem.split(":")[0] for problem in document(bundle)["problems"]] == ["header", "trailer"]
    bundle.write_bytes(b"")
    assert not document(bundle)["slices"]


def test_a_trailer_that_points_elsewhere(bundle: Path) -> None:
    flip(bundle, -TRAILER_SIZE + 7)  # entries
    found = document(bundle)
    assert found["problems"][0].startswith("trailer: length runs past the end")
    assert len(found["slices"]) == 2
