"""Sends a record, as a person wrote it or as another record has it, and records from lines of JSON."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.admin_client import KafkaTrouble
from kafscale.client.json_lines import LineWrong, Record, from_line
from kafscale.console.answers import Row, bad_request
from kafscale.console.decode.registry import RegistryTrouble
from kafscale.console.decode.schemas import Unwritten
from kafscale.console.records.sending import SENT_BYTES_MAX, send, send_all
from kafscale.console.rights import on_topic
from kafscale.console.routes import Call, Route

HEADERS_MAX: Final = 256
LINES_MAX: Final = 1_000
WRONG_MAX: Final = 10
_LONG: Final = 1 << 63


class Given(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes, as a text in this format. json: valid, and sent as it is written. number: 8 bytes, as Kafka's
    LongSerializer. schema: JSON, as the page shows a decoded record, written by the newest schema of the subject; of a
    key or a value only."""

    format: Literal["text", "json", "number", "hex", "base64", "schema"]
    text: str
    subject: str = ""


class GivenHeader(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: Given | None


class GivenRecord(msgspec.Struct, forbid_unknown_fields=True):
    """`partition` None: by the key, as Kafka's own producer. `value` None: a tombstone."""

    key: Given | None
    value: Given | None
    partition: int | None = None
    headers: list[GivenHeader] = []


async def produce(call: Call) -> Row:
    """With acks=all. `partition` and `offset` of the new record."""
    key = await by_its_schema(call, "the key", call.body.key)
    value = await by_its_schema(call, "the value", call.body.value)
    record = record_of(msgspec.structs.replace(call.body, key=key, value=value))
    partition, offset = await call.kafka(send, call.path["topic"], record)
    return {"partition": partition, "offset": offset}


async def by_its_schema(call: Call, what: str, given: Given | None) -> Given | None:
    """In place of one by a schema, its bytes. Raises Problem; nothing is sent then."""
    if given is None or given.format != "schema":
        return given
    if call.site.schemas is None:
        raise bad_request("this console has no registry of schemas; start it with --schema-registry")
    try:
        data = await call.site.schemas.encoded(given.subject, given.text)
    except (RegistryTrouble, Unwritten) as why:
        raise bad_request(f"{what} is not written by the subject {given.subject}: {why}") from why
    return Given(format="base64", text=b64encode(data).decode())


class GivenLines(msgspec.Struct, forbid_unknown_fields=True):
    """Records as `kafscale consume --output json` prints them, one on a line."""

    lines: str


async def produce_lines(call: Call) -> Row:
    """All lines are checked before the first is sent. `items`: of each record its `line`, and `partition` and `offset`
    or `sentence`, why it has none; `written`: how many have a place."""
    given = lines_of(call.body.lines)
    sent = await call.kafka(send_all, call.path["topic"], [record for _, record in given])
    items: list[Row] = []
    for (line, _), outcome in zip(given, sent, strict=True):
        if isinstance(outcome, KafkaTrouble):
            items.append({"line": line, "partition": None, "offset": None, "sentence": str(outcome)})
        else:
            partition, offset = outcome
            items.append({"line": line, "partition": partition, "offset": offset, "sentence": None})
    return {"items": items, "written": sum(each["sentence"] is None for each in items)}


def lines_of(text: str) -> list[tuple[int, Record]]:
    """By the number of their lines, from 1. Empty lines are left out. Raises Problem, which names up to WRONG_MAX wrong
    lines."""
    found: list[tuple[int, Record]] = []
    wrong: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if len(found) == LINES_MAX:
            raise bad_request(
                f"{LINES_MAX:,} records are sent at once at most; `kafscale produce` has no such bound"
            )
        try:
            record = from_line(line.encode())
        except (LineWrong, UnicodeEncodeError) as why:
            wrong.append(f"line {number}: {why}")
            continue
        if len(record.headers) > HEADERS_MAX:
            wrong.append(f"line {number}: it has more than {HEADERS_MAX} headers")
        found.append((number, record))
    if wrong:
        more = f"; and {len(wrong) - WRONG_MAX} more lines" if len(wrong) > WRONG_MAX else ""
        raise bad_request(f"nothing is sent: {'; '.join(wrong[:WRONG_MAX])}{more}")
    if not found:
        raise bad_request("there is no record in it")
    return found


def record_of(given: GivenRecord) -> Record:
    """Raises Problem."""
    if given.partition is not None and given.partition < 0:
        raise bad_request("partition is a whole number from 0")
    if len(given.headers) > HEADERS_MAX:
        raise bad_request(f"a record sent here has {HEADERS_MAX} headers at most")
    return Record(
        partition=given.partition,
        key=_bytes("the key", given.key),
        value=_bytes("the value", given.value),
        headers=tuple((each.name, _bytes(f"the header {each.name}", each.value)) for each in given.headers),
    )


def _bytes(what: str, given: Given | None) -> bytes | None:
    if given is None:
        return None
    try:
        return _of_format(given)
    except (ValueError, RecursionError) as wrong:
        why = "too many levels" if isinstance(wrong, RecursionError) else wrong
        raise bad_request(f"{what} is not {given.format}: {why}") from wrong


def _of_format(given: Given) -> bytes:
    """Raises ValueError, or RecursionError."""
    match given.format:
        case "text":
            return given.text.encode()
        case "json":
            json.loads(given.text, parse_int=str, parse_float=str, parse_constant=_no_constant)
            return given.text.encode()
        case "number":
            number = int(given.text)
            if not -_LONG <= number < _LONG:
                raise ValueError("it does not fit into 64 bits")
            return number.to_bytes(8, "big", signed=True)
        case "hex":
            return bytes.fromhex(given.text)
        case "base64":
            return b64decode(given.text, validate=True)
        case "schema":
            raise ValueError("only a key or a value is written by a schema")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


ROUTES: Final[Sequence[Route]] = (
    Route(
        method="POST",
        path="/topics/{topic}/records",
        handler=produce,
        needs=on_topic(Operation.WRITE),
        changes=True,
        body=GivenRecord,
        body_bytes_max=SENT_BYTES_MAX,
        body_has_names=False,
    ),
    Route(
        method="POST",
        path="/topics/{topic}/records/lines",
        handler=produce_lines,
        needs=on_topic(Operation.WRITE),
        changes=True,
        body=GivenLines,
        body_bytes_max=SENT_BYTES_MAX,
        body_has_names=False,
    ),
)
