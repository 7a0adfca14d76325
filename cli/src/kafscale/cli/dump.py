"""`kafscale dump`: a segment, an index or a bundle, as tables or JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kafscale.cli.terminal import Output, OutputOption, fail, fail_usage, report, show_rows
from kafscale.operations.plain import plain
from kafscale.operations.sentences import Trouble, counted

if TYPE_CHECKING:
    from kafscale.log.segment import SegmentIndex
    from kafscale.operations.dump.read import Batch, Segment
    from kafscale.operations.dump.read_bundle import Bundle, FoundSlice
    from kafscale.wire.records import Record

BATCH_COLUMNS = (
    "position",
    "size",
    "offset",
    "last_offset",
    "records",
    "leader_epoch",
    "codec",
    "crc",
    "max_time",
    "transaction",
)
RECORD_COLUMNS = ("offset", "time", "key", "value", "headers", "marker")
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


def dump(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|s3://BUCKET/KEY", help="A segment (*.kfs), an index (*.index) or a bundle (*.kfb)."
        ),
    ],
    records: Annotated[bool, typer.Option("--records", "-r", help="Print the records too.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the content of a segment or a bundle, with all checksums; exits 1 if it is damaged.

    Example: kafscale dump data/objects/default/orders/0/segment-00000000000000000000.kfs --records

    An object in S3 is read with the KAFSCALE_S3_* settings. CSV has only the batches
    (of a bundle: the slices), or with --records the records.
    """
    from kafscale.operations.dump.source import BUNDLE, INDEX, read_source
    from kafscale.runtime.settings_load import BadSettings

    try:
        data, index = read_source(what)
    except Trouble as trouble:
        raise fail(str(trouble)) from trouble
    except BadSettings as bad:
        raise fail_usage(str(bad)) from bad
    if what.endswith(INDEX):
        if records:
            raise fail_usage("an index has no records; dump its *.kfs file")
        problems = _index_alone(what, data, output)
    elif what.endswith(BUNDLE):
        problems = _bundle(what, data, records=records, output=output)
    else:
        problems = _segment(what, data, index, records=records, output=output)
    if problems:
        raise fail(f"{what} is damaged: {counted(len(problems), 'problem')}")


def _segment(name: str, data: bytes, index: bytes | None, *, records: bool, output: Output) -> list[str]:
    """Returns the problems."""
    from kafscale.operations.dump.read import read_segment, records_of

    found = read_segment(data, index)
    rows = [
        record_row(record, batch)
        for batch in found.batches
        if records
        for record in records_of(data, batch, found.problems)
    ]
    match output:
        case Output.JSON:
            document = segment_document(name, found)
            typer.echo(json.dumps(document | {"records": rows} if records else document, indent=1))
        case Output.CSV:
            columns, shown = (RECORD_COLUMNS, rows) if records else (BATCH_COLUMNS, _batch_rows(found))
            show_rows(columns, shown, output)
        case Output.TABLE:
            for line in _segment_story(name, found):
                report(line)
            show_rows(BATCH_COLUMNS, _batch_rows(found), output)
            if records:
                report("")
                show_rows(RECORD_COLUMNS, rows, output)
            print_problems(found.problems)
    return found.problems


def _index_alone(name: str, data: bytes, output: Output) -> list[str]:
    from kafscale.operations.dump.read import read_index

    problems: list[str] = []
    index = read_index(data, problems)
    if output is Output.JSON:
        document = {"name": name, "size": len(data), "index": _index_document(index), "problems": problems}
        typer.echo(json.dumps(document, indent=1))
    else:
        rows = [entry._asdict() for entry in index.entries] if index is not None else []
        show_rows(("offset", "position"), rows, output)
        if output is Output.TABLE:
            print_problems(problems)
    return problems


def segment_document(name: str, found: Segment) -> dict[str, Any]:
    header, footer = found.header, found.footer
    return {
        "name": name,
        "size": found.size,
        "header": header
        and {
            "base_offset": header.base_offset,
            "message_count": header.message_count,
            "created": time_of(header.created_ms),
        },
        "batches": _batch_rows(found, every=True),
        "footer": footer and {"crc32c": footer.crc32c, "last_offset": footer.last_offset},
        "crc32c": found.crc32c,
        "index": _index_document(found.index),
        "problems": found.problems,
    }


def _index_document(index: SegmentIndex | None) -> dict[str, Any] | None:
    if index is None:
        return None
    return {"interval": index.interval, "entries": [entry._asdict() for entry in index.entries]}


def _segment_story(name: str, found: Segment) -> list[str]:
    header, footer, index = found.header, found.footer, found.index
    lines = [f"{name}: {found.size:,} bytes"]
    if header is not None:
        lines.append(
            f"header: base offset {header.base_offset}, {header.message_count} records, "
            f"made {time_of(header.created_ms)}"
        )
    if footer is not None:
        right = "right" if footer.crc32c == found.crc32c else f"wrong, it is {found.crc32c:#010x}"
        lines.append(f"footer: last offset {footer.last_offset}, CRC-32C {footer.crc32c:#010x} ({right})")
    if index is not None:
        places = ", ".join(f"{entry.offset} at byte {entry.position}" for entry in index.entries)
        lines.append(f"index: an entry each {index.interval} records: {places}")
    return [*lines, ""]


def _batch_rows(found: Segment, *, every: bool = False) -> list[dict[str, Any]]:
    return [batch_row(batch) | (rest_of(batch) if every else {}) for batch in found.batches]


def _bundle(name: str, data: bytes, *, records: bool, output: Output) -> list[str]:
    from kafscale.operations.dump.read_bundle import read_bundle

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
            for line in _bundle_story(name, found):
                report(line)
            show_rows(SLICE_COLUMNS, [slice_row(each) for each in found.slices], output)
            for each, rows in zip(found.slices, opened, strict=True):
                if records:
                    report(f"\n{each.name}:")
                    show_rows(RECORD_COLUMNS, rows, output)
            print_problems(found.problems)
    return found.problems


def _records_of(found: FoundSlice, problems: list[str]) -> list[dict[str, Any]]:
    from kafscale.operations.dump.read import records_of

    troubles: list[str] = []
    rows = [
        _place(found) | record_row(record, batch)
        for batch in found.segment.batches
        for record in records_of(found.data, batch, troubles)
    ]
    problems += [f"{found.name}: {trouble}" for trouble in troubles]
    return rows


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


def _bundle_story(name: str, found: Bundle) -> list[str]:
    lines = [f"{name}: {found.size:,} bytes"]
    if found.header is not None:
        bundle_id, created_ms = found.header
        lines.append(f"header: bundle {bundle_id.hex()}, made {time_of(created_ms)}")
    if found.trailer is not None:
        where, count, says = found.trailer
        right = "right" if says == found.crc32c else f"wrong, it is {found.crc32c:#010x}"
        lines.append(f"directory: {count} entries at byte {where}, CRC-32C {says:#010x} ({right})")
    return [*lines, ""]


def batch_row(batch: Batch) -> dict[str, Any]:
    header = batch.header
    return {
        "position": batch.position,
        "size": header.size,
        "offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "leader_epoch": header.partition_leader_epoch,
        "codec": batch.codec,
        "crc": "right" if batch.is_whole else "wrong",
        "max_time": time_of(header.max_timestamp),
        "transaction": transaction_of(batch),
    }


def transaction_of(batch: Batch) -> str | None:
    """Producer id and epoch of a batch in a transaction; of a marker also what it says. None: outside transactions."""
    header, marker = batch.header, batch.marker
    if not header.is_transactional and not header.is_control:
        return None
    producer = f"{header.producer_id}/{header.producer_epoch}"
    if not header.is_control:
        return producer
    return f"{'control' if marker is None else 'commit' if marker.commit else 'abort'} {producer}"


def rest_of(batch: Batch) -> dict[str, Any]:
    """Fields for which a table has no room."""
    header = batch.header
    return {
        "crc32c": header.crc,
        "base_time": time_of(header.base_timestamp),
        "is_log_append_time": header.is_log_append_time,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "coordinator_epoch": batch.marker and batch.marker.coordinator_epoch,
    }


def record_row(record: Record, batch: Batch) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "time": time_of(record.timestamp),
        "key": plain(record.key),
        "value": plain(record.value),
        "headers": [{"key": key, "value": plain(value)} for key, value in record.headers],
        "marker": transaction_of(batch) if batch.header.is_control else None,
    }


def time_of(time_ms: int) -> str | None:
    """ISO 8601; None if there is no time, the number if it is outside the calendar."""
    if time_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def print_problems(problems: list[str]) -> None:
    for problem in problems:
        report(f"PROBLEM {problem}")
    if not problems:
        report("whole: every checksum is right")
