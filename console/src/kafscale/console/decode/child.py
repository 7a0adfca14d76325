"""Decodes and encodes Avro and Protobuf in a process of its own: `python -m kafscale.console.decode.child`.

Law S6: bytes and schemas are not trusted. A few bytes may claim 2^40 elements, and a schema may nest without end. So
this process has little memory, its parent ends it when it is late, and its end is only the end of these views.

Messages (`console.child`) are MessagePack: a Job, and a list of Answers in the order of items; or a Writing, and a
Written.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import msgspec
from kafscale.console.child import give, limit_self, take

MEMORY_BYTES: Final = 1 << 30
_REASON_CHARS_MAX: Final = 300


class Item(msgspec.Struct, array_like=True):
    """`data` without the header of the registry."""

    schema: int
    data: bytes


class Given(msgspec.Struct, array_like=True):
    """Of a schema: its id, kind, text and references, as `registry.Schema`."""

    schema_id: int
    kind: str
    text: str
    references: list[tuple[str, str]]


class Job(msgspec.Struct, array_like=True, tag=True):
    schemas: list[Given]
    items: list[Item]
    """`schema` is an index into `schemas`."""
    chars_max: int


class Answer(msgspec.Struct, array_like=True):
    """`text` is JSON, `name` the record's or the message's; or `reason` says why it could not be decoded."""

    text: str = ""
    name: str = ""
    reason: str = ""


class Writing(msgspec.Struct, array_like=True, tag=True):
    """`text` is JSON, to be encoded by the schema."""

    schema: Given
    text: str


class Written(msgspec.Struct, array_like=True):
    """`data` without the header of the registry; or `reason` says why it could not be encoded."""

    data: bytes = b""
    reason: str = ""


def written(job: Writing) -> Written:
    from kafscale.console.decode.avro_writing import avro_encoder
    from kafscale.console.decode.protobuf import protobuf_encoder

    make = avro_encoder if job.schema.kind == "AVRO" else protobuf_encoder
    try:
        return Written(make(job.schema.text, job.schema.references)(job.text))
    except Exception as wrong:  # noqa: BLE001 -- of libraries that read hostile schemas; each has its own kinds
        return Written(reason=_reason(wrong))


def _reason(wrong: Exception) -> str:
    return str(wrong)[:_REASON_CHARS_MAX] or type(wrong).__name__


def answers(job: Job) -> list[Answer]:
    from kafscale.console.decode.avro import avro_decoder
    from kafscale.console.decode.protobuf import protobuf_decoder

    decoders: dict[int, Any] = {}
    found = []
    for item in job.items:
        given = job.schemas[item.schema]
        try:
            if item.schema not in decoders:
                make = avro_decoder if given.kind == "AVRO" else protobuf_decoder
                decoders[item.schema] = make(given.text, given.references)
            text, name = decoders[item.schema](item.data)
            found.append(Answer(text[: job.chars_max + 1], name))
        except Exception as wrong:  # noqa: BLE001 -- of libraries that decode hostile bytes; each has its own kinds
            found.append(Answer(reason=_reason(wrong)))
    return found


def main() -> None:
    limit_self(MEMORY_BYTES, writes=True)  # protoc reads and writes files
    with os.fdopen(os.dup(1), "wb") as write, open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)  # protoc writes to both
        os.dup2(nothing.fileno(), 2)
        while (message := take(sys.stdin.buffer)) is not None:
            job = msgspec.msgpack.decode(message, type=Job | Writing)
            give(write, msgspec.msgpack.encode(answers(job) if isinstance(job, Job) else written(job)))


if __name__ == "__main__":
    main()
