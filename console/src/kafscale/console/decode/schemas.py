"""Views of bytes that name their schema, and such bytes from JSON.

Confluent's header is a zero byte and the schema's id in four.

Law R7 holds here too: if such bytes cannot be decoded they are shown as any others, with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from kafscale.console.child import Kept, TooLong
from kafscale.console.decode.child import Answer, Given, Item, Job, Writing, Written
from kafscale.console.decode.plain import Format, Unfit, View, json_of, view_of
from kafscale.console.decode.registry import Registry, RegistryTrouble, Schema

JOB_TIMEOUT_S: Final = 10.0
TRY_TIMEOUT_S: Final = 5.0
ONE_TIMEOUT_S: Final = 2.0
"""Of an item alone, after a job that was too much. It includes the start of the child."""
MODULE: Final = "kafscale.console.decode.child"
SCHEMAS_MAX: Final = 50
"""Of one page of records."""
_HEADER_BYTES: Final = 5
_ANSWER_BYTES_MAX: Final = 64 << 20
_CUT_OFF: Final = "the process that decodes was ended: this takes too much time or memory"

T = TypeVar("T")


class Unwritten(Exception):
    """The text is a part of a sentence: why the JSON is not of the schema."""


Views = Mapping[bytes, View]
"""By all bytes of the field."""


def schema_id_of(data: bytes | None) -> int | None:
    """None if it has no header."""
    if data is None or len(data) < _HEADER_BYTES or data[0] != 0:
        return None
    return int.from_bytes(data[1:_HEADER_BYTES], "big")


class Schemas:
    """The registry, and the child process that decodes and encodes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._kept = Kept(MODULE, _ANSWER_BYTES_MAX, quiet=True)
        self._turn = asyncio.Lock()
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """How many fields by format (a kind of schema, or unknown) and outcome (decoded or failed)."""

    async def views(self, fields: Iterable[bytes | None], chars_max: int) -> Views:
        """Of those with a header."""
        framed = {
            data: number for data in fields if (number := schema_id_of(data)) is not None and data is not None
        }
        wanted = list(dict.fromkeys(framed.values()))[:SCHEMAS_MAX]
        schemas = dict(zip(wanted, await asyncio.gather(*map(self._schema, wanted)), strict=True))
        found: dict[bytes, View] = {}
        binary: list[bytes] = []
        for data, number in framed.items():
            schema = schemas.get(number, f"a page has {SCHEMAS_MAX} schemas at most")
            if isinstance(schema, str):
                found[data] = _undecoded(data, number, schema, chars_max)
            elif schema.kind == "JSON":
                found[data] = _json_view(data, schema, chars_max)
            else:
                binary.append(data)
        known = {number: each for number, each in schemas.items() if isinstance(each, Schema)}
        found |= await self._decoded(binary, known, chars_max)
        for data, view in found.items():
            kind = known[framed[data]].kind.lower() if framed[data] in known else "unknown"
            self.outcomes[kind, "failed" if "reason" in view else "decoded"] += 1
        return found

    async def _schema(self, schema_id: int) -> Schema | str:
        """Or why there is none."""
        try:
            return await self._registry.schema(schema_id)
        except RegistryTrouble as trouble:
            return str(trouble)

    async def _decoded(
        self, framed: Sequence[bytes], schemas: Mapping[int, Schema], chars_max: int
    ) -> dict[bytes, View]:
        if not framed:
            return {}
        order = list(schemas)
        job = Job(
            schemas=list(map(_given, schemas.values())),
            items=[
                Item(order.index(int.from_bytes(data[1:_HEADER_BYTES], "big")), data[_HEADER_BYTES:])
                for data in framed
            ],
            chars_max=chars_max,
        )
        found: dict[bytes, View] = {}
        for data, answer in zip(framed, await self._asked(job), strict=True):
            schema = schemas[int.from_bytes(data[1:_HEADER_BYTES], "big")]
            if answer.reason:
                found[data] = _undecoded(data, schema.schema_id, answer.reason, chars_max)
            else:
                found[data] = _view(schema, answer.text, answer.name, data, chars_max)
        return found

    async def _asked(self, job: Job) -> list[Answer]:
        """One job at a time. If it ends the child, its items are tried one by one, so that only those that do harm are
        without an answer."""
        async with self._turn:
            until_s = time.monotonic() + JOB_TIMEOUT_S
            found = await self._tried(job, TRY_TIMEOUT_S)
            if found is None and len(job.items) > 1:
                found = [await self._one(job, item, until_s) for item in job.items]
            return found or [Answer(reason=_CUT_OFF)] * len(job.items)

    async def _one(self, job: Job, item: Item, until_s: float) -> Answer:
        limit_s = min(ONE_TIMEOUT_S, until_s - time.monotonic())
        one = Job(job.schemas, [item], job.chars_max)
        found = await self._tried(one, limit_s) if limit_s > 0 else None
        return Answer(reason=_CUT_OFF) if found is None else found[0]

    async def _tried(self, job: Job, limit_s: float) -> list[Answer] | None:
        """None if the child was late or ended."""
        found = await self._exchanged(job, list[Answer], limit_s)
        return found if found is not None and len(found) == len(job.items) else None

    async def _exchanged(self, message: Job | Writing, kind: type[T], limit_s: float) -> T | None:
        """The child's answer. None if the child was late or ended. The next message has a new child then."""
        try:
            async with asyncio.timeout(limit_s), self._kept.use() as child:
                await child.send(msgspec.msgpack.encode(message))
                answer = await child.receive()
            if answer is not None:
                return msgspec.msgpack.decode(answer, type=kind)
        except (TimeoutError, OSError, TooLong, msgspec.MsgspecError):
            pass
        except asyncio.CancelledError:
            await self._kept.end()  # its answer would be taken for that of the next job
            raise
        await self._kept.end()
        return None

    async def encoded(self, subject: str, text: str) -> bytes:
        """The JSON as bytes of the subject's newest schema, with its header. Raises RegistryTrouble and Unwritten."""
        schema = await self._registry.latest(subject)
        if schema.kind == "JSON":
            raise Unwritten("it is a JSON Schema, which the console cannot check")
        async with self._turn:
            found = await self._exchanged(Writing(_given(schema), text), Written, TRY_TIMEOUT_S)
        if found is None or found.reason:
            raise Unwritten(_CUT_OFF if found is None else found.reason)
        return b"\0" + schema.schema_id.to_bytes(4, "big") + found.data

    async def close(self) -> None:
        await self._kept.close()
        await self._registry.close()


def _given(schema: Schema) -> Given:
    return Given(schema.schema_id, schema.kind, schema.text, list(schema.references))


def _view(schema: Schema, text: str, name: str, data: bytes, chars_max: int) -> View:
    cut = {"cut": True} if len(text) > chars_max else {}
    return {
        "format": {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}[schema.kind],
        "text": text[:chars_max],
        "bytes": len(data),
        "schema": {"id": schema.schema_id, "name": name, "subject": schema.subject},
    } | cut


def _json_view(data: bytes, schema: Schema, chars_max: int) -> View:
    try:
        return _view(schema, json_of(data[_HEADER_BYTES:], chars_max), "", data, chars_max)
    except Unfit as why:
        return _undecoded(data, schema.schema_id, str(why), chars_max)


def _undecoded(data: bytes, schema_id: int, reason: str, chars_max: int) -> View:
    found = view_of(data, Format.AUTO, chars_max)
    return found | {"reason": f"not decoded by schema {schema_id}: {reason}"}
