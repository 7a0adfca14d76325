"""`kafscale dump` of a bundle: header, directory, and with `--records` the records of each slice."""

from __future__ import annotations

import json
from typing import Any

import typer
from kafscale.cli.dump.rows import (
    RECORD_COLUMNS,
    batch_row,
    print_problems,
    record_row,
    rest_of,
    time_of,
)
from kafscale.cli.terminal import Output, report, show_rows
from kafscale.operations.dump.read import records_of
from kafscale.operations.dump.read_bundle import Bundle, FoundSlice, read_bundle

SLICE_COLUMNS = (
    "position",
    "size",
    "topic_id",
    "partition",
    "leader_epoch",
    "offset",
    "last_offset",
    "records",
    "batches",
    "crc",
    "max_time",
)
PLACE_COLUMNS = ("topic_id", "partition")


def show_bundle(name: str, data: bytes, *, records: bool, output: Output) -> list[str]:
    """Returns the problems."""
    found = read_bundle(data)
    opened = [_records_of(each, found.problems) if records else [] for each in found.slices]
    match output:
        case Output.JSON:
            document = bundle_document(name, found)
            rows = [row for of_slice in opened for row in of_slice]
            typer.echo(json.dumps(document | {"records": rows} if records else document, indent=1))
        case Output.CSV if records:
            rows = [row for of_slice in opened for row in of_slice]
            show_rows((*PLACE_COLUMNS, *RECORD_COLUMNS), rows, output)
        case Output.CSV:
            show_rows(SLICE_COLUMNS, [slice_row(each) for each in found.slices], output)
        case Output.TABLE:
            for line in _story(name, found):
                report(line)
            show_rows(SLICE_COLUMNS, [slice_row(each) for each in found.slices], output)
            for each, rows in zip(found.slices, opened, strict=True):
                if records:
                    report(f"\n{each.name}:")
                    show_rows(RECORD_COLUMNS, rows, output)
            print_problems(found.problems)
    return found.problems


def _records_of(found: FoundSlice, problems: list[str]) -> list[dict[str, Any]]:
    troubles: list[str] = []
    opened = [record for batch in found.segment.batches for record in records_of(found.data, batch, troubles)]
    problems += [f"{found.name}: {trouble}" for trouble in troubles]
    return [_place(found) | record_row(record) for record in opened]


def _place(found: FoundSlice) -> dict[str, Any]:
    """Unknown if there is no directory."""
    entry = found.entry
    return {
        "topic_id": None if entry is None else entry.topic_id.hex(),
        "partition": None if entry is None else entry.partition,
    }


def bundle_document(name: str, found: Bundle) -> dict[str, Any]:
    header, trailer = found.header, found.trailer
    return {
        "name": name,
        "size": found.size,
        "header": header and {"id": header[0].hex(), "created": time_of(header[1])},
        "directory": trailer
        and {"position": trailer.position, "entries": trailer.entries, "crc32c": trailer.crc32c},
        "crc32c": found.crc32c,
        "slices": [_whole_row(each) for each in found.slices],
        "problems": found.problems,
    }


def _whole_row(found: FoundSlice) -> dict[str, Any]:
    footer = found.segment.footer
    batches = [batch_row(batch) | rest_of(batch) for batch in found.segment.batches]
    return slice_row(found) | {"crc32c": footer and footer.crc32c, "content": batches}


def slice_row(found: FoundSlice) -> dict[str, Any]:
    """What the directory says; without one, what the slice says."""
    entry, segment = found.entry, found.segment
    row = {"position": found.position, "size": len(found.data), **_place(found)}
    if entry is not None:
        row |= {
            "size": entry.size,
            "leader_epoch": entry.leader_epoch,
            "offset": entry.base,
            "last_offset": entry.last,
            "records": entry.records,
            "batches": entry.batches,
            "max_time": time_of(entry.max_ts),
        }
    else:
        heads = [batch.header for batch in segment.batches]
        row |= {
            "leader_epoch": heads[0].partition_leader_epoch if heads else None,
            "offset": segment.header and segment.header.base_offset,
            "last_offset": heads[-1].last_offset if heads else None,
            "records": sum(head.records_count for head in heads),
            "batches": len(heads),
            "max_time": time_of(max((head.max_timestamp for head in heads), default=-1)),
        }
    return row | {"crc": "right" if found.is_whole else "wrong"}


def _story(name: str, found: Bundle) -> list[str]:
    lines = [f"{name}: {found.size:,} bytes"]
    if found.header is not None:
        bundle_id, created_ms = found.header
        lines.append(f"header: bundle {bundle_id.hex()}, made {time_of(created_ms)}")
    if found.trailer is not None:
        where, count, says = found.trailer
        right = "right" if says == found.crc32c else f"wrong, it is {found.crc32c:#010x}"
        lines.append(f"directory: {count} entries at byte {where}, CRC-32C {says:#010x} ({right})")
    return [*lines, ""]
