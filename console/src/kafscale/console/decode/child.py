"""Decodes Avro and Protobuf in a process of its own: `python -m kafscale.console.decode.child`.

Law S6: bytes and schemas are not trusted. A few bytes may claim 2^40 elements, and a schema may nest without end. So
this process has little memory, its parent ends it when it is late, and its end is only the end of these views.

Messages in both directions are a length (4 bytes) and MessagePack: a Job, and a list of Answers in the order of items.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from typing import IO, Any, Final

import msgspec

MEMORY_BYTES: Final = 1 << 30
LENGTH: Final = struct.Struct(">I")


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


class Job(msgspec.Struct, array_like=True):
    schemas: list[Given]
    items: list[Item]
    """`schema` is an index into `schemas`."""
    chars_max: int


class Answer(msgspec.Struct, array_like=True):
    """`text` is JSON, `name` the record's or the message's; or `reason` says why it could not be decoded."""

    text: str = ""
    name: str = ""
    reason: str = ""


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
            found.append(Answer(reason=f"{str(wrong)[:300] or type(wrong).__name__}"))
    return found


def serve(read: IO[bytes], write: IO[bytes]) -> None:
    while len(head := read.read(LENGTH.size)) == LENGTH.size:
        job = msgspec.msgpack.decode(read.read(*LENGTH.unpack(head)), type=Job)
        body = msgspec.msgpack.encode(answers(job))
        write.write(LENGTH.pack(len(body)) + body)
        write.flush()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(1), "wb") as write, open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)  # protoc writes to both
        os.dup2(nothing.fileno(), 2)
        serve(sys.stdin.buffer, write)


if __name__ == "__main__":
    main()
