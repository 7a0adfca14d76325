"""`kafscale dump`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from kafscale.cli.dump.rows import (
    BATCH_COLUMNS,
    RECORD_COLUMNS,
    batch_row,
    print_problems,
    record_row,
    rest_of,
    time_of,
)
from kafscale.cli.terminal import Output, OutputOption, fail, fail_usage, report, show_rows
from kafscale.operations.sentences import Trouble, counted

if TYPE_CHECKING:
    from kafscale.log.segment import SegmentIndex
    from kafscale.operations.dump.read import Segment


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
    from kafscale.cli.dump.show_bundle import show_bundle
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
        problems = show_bundle(what, data, records=records, output=output)
    else:
        problems = _segment(what, data, index, records=records, output=output)
    if problems:
        raise fail(f"{what} is damaged: {counted(len(problems), 'problem')}")


def _segment(name: str, data: bytes, index: bytes | None, *, records: bool, output: Output) -> list[str]:
    from kafscale.operations.dump.read import read_segment, records_of

    found = read_segment(data, index)
    opened = [
        record for batch in found.batches if records for record in records_of(data, batch, found.problems)
    ]
    rows = [record_row(record) for record in opened]
    match output:
        case Output.JSON:
            document = segment_document(name, found)
            typer.echo(json.dumps(document | {"records": rows} if records else document, indent=1))
        case Output.CSV:
            columns, shown = (RECORD_COLUMNS, rows) if records else (BATCH_COLUMNS, _batch_rows(found))
            show_rows(columns, shown, output)
        case Output.TABLE:
            for line in _story(name, found):
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


def _story(name: str, found: Segment) -> list[str]:
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
