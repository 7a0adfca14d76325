"""Sends one record, as a person wrote it or as another record has it."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.json_lines import Record
from kafscale.console.answers import Row, bad_request
from kafscale.console.records.sending import SENT_BYTES_MAX, send
from kafscale.console.rights import on_topic
from kafscale.console.routes import Call, Route

HEADERS_MAX: Final = 256
_LONG: Final = 1 << 63


class Given(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes, as a text in this format. json: valid, and sent as it is written. number: 8 bytes, as Kafka's
    LongSerializer."""

    format: Literal["text", "json", "number", "hex", "base64"]
    text: str


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
    record = record_of(call.body)
    partition, offset = await call.kafka(send, call.path["topic"], record)
    return {"partition": partition, "offset": offset}


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
)
