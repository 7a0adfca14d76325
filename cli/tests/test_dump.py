"""`kafscale dump` shows what a segment holds, and of a damaged one each damage and what is left."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from kafscale.cli.__main__ import app
from kafscale.log.segment import HEADER_SIZE, BatchInfo, build_segment
from kafscale.testkit.seaweed import SeaweedServer
from kafscale.wire.markers import Marker, end_marker
from kafscale.wire.records import Codec, Record, build_batch, read_batch_header
from typer.testing import CliRunner, Result

BASE, EACH, BATCHES = 40, 60, 3
NAME = "segment-00000000000000000040.kfs"
TIME_MS = 1_769_846_400_123


def batches() -> list[bytes]:
    return [
        build_batch(
            [
                Record(timestamp=TIME_MS, key=b"k", value=b"\xff" if n else b"text", headers=(("h", None),))
                for n in range(EACH)
            ],
            base_offset=BASE + EACH * number,
            leader_epoch=7,
            codec=Codec.ZSTD if number == 1 else Codec.NONE,
            producer_id=5,
            producer_epoch=1,
            base_sequence=EACH * number,
        )
        for number in range(BATCHES)
    ]


def files(folder: Path, parts: list[bytes]) -> Path:
    """A segment and its index; the segment's path."""
    infos = [
        BatchInfo(header.base_offset, header.last_offset, header.size, header.records_count)
        for header in map(read_batch_header, parts)
    ]
    built = build_segment(infos[0].offset, infos, parts, TIME_MS)
    path = folder / NAME
    path.write_bytes(b"".join(built.body))
    path.with_suffix(".index").write_bytes(built.index)
    return path


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    return files(tmp_path, batches())


def run(*words: object, **env: str) -> Result:
    return CliRunner().invoke(app, ["dump", *map(str, words)], env=env)


def document(*words: object) -> dict[str, Any]:
    result = run(*words, "--output", "json")
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == bool(found["problems"]), result.output
    return found


def second() -> int:
    """The byte at which the second batch begins."""
    return HEADER_SIZE + len(batches()[0])


def flip(path: Path, at: int, by: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= by
    path.write_bytes(data)


def test_a_whole_segment(segment: Path) -> None:
    found = document(segment)
    assert found["problems"] == []
    assert found["header"] == {
        "base_offset": BASE,
        "message_count": EACH * BATCHES,
        "created": "2026-01-31T08:00:00.123+00:00",
    }
    assert found["footer"] == {"crc32c": found["crc32c"], "last_offset": BASE + EACH * BATCHES - 1}
    assert [(row["offset"], row["records"], row["codec"], row["crc"]) for row in found["batches"]] == [
        (40, 60, "none", "right"),
        (100, 60, "zstd", "right"),
        (160, 60, "none", "right"),
    ]
    assert {(row["leader_epoch"], row["producer_id"]) for row in found["batches"]} == {(7, 5)}
    third = found["batches"][2]["position"]
    assert found["index"] == {
        "interval": 100,
        "entries": [{"offset": 40, "position": HEADER_SIZE}, {"offset": 160, "position": third}],
    }


def test_the_records_of_a_segment(segment: Path) -> None:
    rows = document(segment, "--records")["records"]
    assert [row["offset"] for row in rows] == list(range(BASE, BASE + EACH * BATCHES))
    first = {"key": "k", "value": "text", "headers": [{"key": "h", "value": None}], "marker": None}
    assert rows[0] == {"offset": BASE, "time": "2026-01-31T08:00:00.123+00:00", **first}
    assert rows[1]["value"] == "\\xff"
    listed = csv.DictReader(io.StringIO(run(segment, "--records", "-o", "csv").stdout))
    assert [int(row["offset"]) for row in listed] == [row["offset"] for row in rows]


def test_the_same_for_people(segment: Path) -> None:
    result = run(segment, "-r")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"{segment}: {segment.stat().st_size:,} bytes"
    assert lines[1] == "header: base offset 40, 180 records, made 2026-01-31T08:00:00.123+00:00"
    assert lines[3].startswith("index: an entry each 100 records: 40 at byte 32, 160 at byte ")
    assert lines[-1] == "whole: every checksum is right"


def test_markers_say_which_transaction_they_end_and_how(tmp_path: Path) -> None:
    def data(offset: int) -> bytes:
        records = [Record(timestamp=TIME_MS, value=b"v")]
        return build_batch(
            records,
            base_offset=offset,
            producer_id=9,
            producer_epoch=2,
            base_sequence=offset,
            transactional=True,
        )

    def marker(offset: int, says: Marker) -> bytes:
        made = bytearray(end_marker(says, producer_id=9, producer_epoch=3, timestamp_ms=TIME_MS))
        made[:8] = offset.to_bytes(8, "big")
        return bytes(made)

    broken = build_batch(
        [Record(timestamp=TIME_MS, key=b"\0")], base_offset=4, transactional=True, control=True
    )
    parts = [data(0), marker(1, Marker(True, 5)), data(2), marker(3, Marker(False, 6)), broken]
    path = files(tmp_path, parts)
    result = run(path, "--records", "--output", "json")
    found = json.loads(result.stdout)
    assert [(row["transaction"], row["coordinator_epoch"]) for row in found["batches"]] == [
        ("9/2", None),
        ("commit 9/3", 5),
        ("9/2", None),
        ("abort 9/3", 6),
        ("control -1/-1", None),
    ]
    assert [row["marker"] for row in found["records"]] == [
        None,
        "commit 9/3",
        None,
        "abort 9/3",
        "control -1/-1",
    ]
    (problem,) = found["problems"]
    assert problem.startswith("batch 4 at byte ")
    assert "control record" in problem
    assert "commit 9/3" in run(path).stdout


def test_an_index_alone_and_a_segment_alone(segment: Path) -> None:
    index = segment.with_suffix(".index")
    assert [entry["offset"] for entry in document(index)["index"]["entries"]] == [40, 160]
    assert run(index, "--records").exit_code == 2
    index.unlink()
    assert (document(segment)["index"], document(segment)["problems"]) == (None, [])


def test_a_flipped_bit_in_a_record_is_found_by_both_checksums(segment: Path) -> None:
    at = second()
    flip(segment, at + 70)
    found = document(segment)
    assert [row["crc"] for row in found["batches"]] == ["right", "wrong", "right"]
    footer, batch = found["problems"]
    assert footer.startswith("footer: its CRC-32C is 0x")
    assert batch == f"batch 100 at byte {at}: its CRC-32C is wrong"
    assert "is damaged: 2 problems" in run(segment).stderr


def test_a_batch_that_cannot_be_opened_is_told_and_the_others_are_shown(segment: Path) -> None:
    at = second()
    flip(segment, at + 62, 0xFF)
    found = document(segment, "--records")
    assert [row["offset"] for row in found["records"]] == [*range(40, 100), *range(160, 220)]
    assert any(problem.startswith(f"batch 100 at byte {at}: ") for problem in found["problems"][2:])


def test_where_no_batch_says_what_follows_reading_stops(segment: Path) -> None:
    at = second()
    flip(segment, at + 8, 0x7F)
    found = document(segment)
    assert [row["offset"] for row in found["batches"]] == [40]
    assert any(
        problem.startswith(f"batches: length runs past the end at byte {at + 8}")
        for problem in found["problems"]
    )


@pytest.mark.parametrize(
    ("keep", "end", "problem"),
    [
        (0, b"", "header: too short at byte 0"),
        (HEADER_SIZE + 4, b"", "footer: wrong magic"),
        (HEADER_SIZE + 4, b"END!", "segment: 40 bytes are too few for a header and a footer"),
        (HEADER_SIZE + 200, b"", "batches: length runs past the end at byte 40"),
    ],
)
def test_a_segment_that_was_cut(segment: Path, keep: int, end: bytes, problem: str) -> None:
    segment.with_suffix(".index").unlink()
    segment.write_bytes(segment.read_bytes()[:keep] + end)
    problems = document(segment)["problems"]
    assert any(each.startswith(problem) for each in problems), problems


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        (0, "header: wrong magic at byte 0"),
        (15, "header: base offset is 41, that of the batches 40"),
        (19, "header: message count is 181, that of the batches 180"),
        (-5, "footer: last offset is 218, that of the batches 219"),
        (-1, "footer: wrong magic"),
    ],
)
def test_header_and_footer_are_held_against_the_batches(segment: Path, at: int, problem: str) -> None:
    flip(segment, at)
    assert document(segment)["problems"][0].startswith(problem)


@pytest.mark.parametrize(("at", "offset"), [(-1, 160), (-5, 161)], ids=["position", "offset"])
def test_an_index_that_points_elsewhere(segment: Path, at: int, offset: int) -> None:
    flip(segment.with_suffix(".index"), at)
    (problem,) = document(segment)["problems"]
    assert problem.startswith(f"index: no batch of offset {offset} begins at byte ")


def test_what_cannot_be_read_at_all_is_a_sentence(tmp_path: Path) -> None:
    gone = tmp_path / "gone.kfs"
    assert run(gone).stderr.strip() == f"kafscale: {gone} does not exist"
    notes = tmp_path / "notes.txt"
    assert run(notes).stderr.strip() == f"kafscale: {notes} does not exist", (
        "what kind it is does not matter then"
    )
    notes.write_text("text")
    assert "no segment (*.kfs), no index (*.index) and no bundle" in run(notes).stderr
    assert run(gone).exit_code == 1


async def test_a_segment_in_s3(seaweed: SeaweedServer, tmp_path: Path) -> None:
    import asyncio

    from kafscale.storage.objects.s3 import S3Store

    path = files(tmp_path, batches())
    config = seaweed.s3_config()
    store = S3Store(config)
    for each in (path, path.with_suffix(".index")):
        await store.put(f"default/orders/0/{each.name}", [each.read_bytes()])
    await store.close()
    env = {
        "KAFSCALE_S3_ENDPOINT": seaweed.endpoint,
        "KAFSCALE_S3_ACCESS_KEY_ID": config.access_key_id or "",
        "KAFSCALE_S3_SECRET_ACCESS_KEY": config.secret_access_key or "",
    }
    where = f"s3://{config.bucket}/default/orders/0"

    def look(name: str) -> Result:
        return run(f"{where}/{name}", "-o", "json", **env)

    result = await asyncio.to_thread(look, NAME)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) | {"name": ""} == document(path) | {"name": ""}
    missing = await asyncio.to_thread(look, "no.kfs")
    assert f"bucket {config.bucket} has no object default/orders/0/no.kfs" in missing.stderr
