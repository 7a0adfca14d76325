"""Records that name a schema of a registry, the registry itself, and bytes that want to do harm."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from aiohttp import web
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from kafscale.console.api.showing import Showing
from kafscale.console.decode import registry as module
from kafscale.console.decode import schemas as decoding
from kafscale.console.decode.avro import avro_decoder
from kafscale.console.decode.avro_writing import avro_encoder
from kafscale.console.decode.plain import Format, View
from kafscale.console.decode.protobuf import message_path, protobuf_decoder
from kafscale.console.decode.registry import Registry, RegistryTrouble
from kafscale.console.decode.schemas import Schemas, Unwritten, schema_id_of

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "com.example",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "buyer", "type": "com.example.Person"},
    ],
}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "com.example",
    "fields": [{"name": "name", "type": "string"}],
}
PROTO = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "people/person.proto";
message First { string a = 1; }
message Order { int64 id = 1; people.Person buyer = 2; google.protobuf.Timestamp at = 3;
  message Line { uint64 count = 1; } }"""
PEOPLE = 'syntax = "proto3"; package people; message Person { string name = 1; }'
NULLS = {"type": "array", "items": "null"}
DEEP = 'syntax = "proto3"; message Deep { Deep deep = 1; }'
AVRO, PROTOBUF, JSON, MANY, NESTED, NONSENSE, OUTSIDE = range(1, 8)
SCHEMAS: dict[int, dict[str, Any]] = {
    AVRO: {
        "schema": json.dumps(ORDER),
        "references": [{"name": "com.example.Person", "subject": "people-value", "version": 1}],
    },
    PROTOBUF: {
        "schemaType": "PROTOBUF",
        "schema": PROTO,
        "references": [{"name": "people/person.proto", "subject": "people/proto", "version": 2}],
    },
    JSON: {"schemaType": "JSON", "schema": "{}"},
    MANY: {"schema": json.dumps(NULLS)},
    NESTED: {"schemaType": "PROTOBUF", "schema": DEEP},
    NONSENSE: {"schemaType": "PROTOBUF", "schema": "message {"},
    OUTSIDE: {
        "schemaType": "PROTOBUF",
        "schema": 'syntax = "proto3"; message A {}',
        "references": [{"name": "../../tmp/person.proto", "subject": "people/proto", "version": 2}],
    },
}


def described(name: str, field: FieldDescriptorProto, *imports: str) -> str:
    """A file with one message of one field, as Confluent's client for Python registers it."""
    file = FileDescriptorProto(name="x.proto", package="people", syntax="proto3", dependency=imports)
    file.message_type.add(name=name).field.append(field)
    return b64encode(file.SerializeToString()).decode()


NAME = FieldDescriptorProto(name="name", number=1, type=FieldDescriptorProto.TYPE_STRING)
BUYER = FieldDescriptorProto(
    name="buyer", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".people.Person"
)
ORDER_TEXT = 'syntax = "proto3"; import "people/person.proto"; message Order { people.Person buyer = 1; }'


LATEST = {"orders-value": AVRO, "shop-value": PROTOBUF, "json-value": JSON, "nonsense": NONSENSE}
SUBJECTS = {("people-value", 1): json.dumps(PERSON), ("people/proto", 2): PEOPLE}

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def registry(answer: Answer | None = None, asked: list[str] | None = None) -> AsyncIterator[Registry]:
    async def ordinary(request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        match parts:
            case ["schemas", "ids", number] if int(number) in SCHEMAS:
                return web.json_response(SCHEMAS[int(number)])
            case ["schemas", "ids", number, "versions"] if int(number) == AVRO:
                return web.json_response([{"subject": "orders-value", "version": 3}])
            case ["subjects", subject, "versions", "latest"] if subject in LATEST:
                number = LATEST[subject]
                return web.json_response({"subject": subject, "version": 3, "id": number, **SCHEMAS[number]})
            case ["subjects", *subject, "versions", version] if ("/".join(subject), version) in (
                (name, str(number)) for name, number in SUBJECTS
            ):
                return web.json_response({"schema": SUBJECTS["/".join(subject), int(version)]})
        return web.json_response({"error_code": 40403}, status=404)

    async def handle(request: web.Request) -> web.StreamResponse:
        if asked is not None:
            asked.append(request.path)
        return await (answer or ordinary)(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found = Registry(f"http://{host}:{port}")
    try:
        yield found
    finally:
        await found.close()
        await runner.cleanup()


@asynccontextmanager
async def schemas() -> AsyncIterator[Schemas]:
    async with registry() as found:
        decoder = Schemas(found)
        try:
            yield decoder
        finally:
            await decoder.close()


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + body


def avro(value: Mapping[str, Any]) -> bytes:
    named: dict[str, Any] = {}
    fastavro.parse_schema(PERSON, named_schemas=named)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), value)
    return out.getvalue()


EXACT = (1 << 53) + 1
SMALL = {"id": 1, "price": Decimal(1), "at": 0, "raw": b"", "buyer": {"name": ""}}


async def view(data: bytes) -> View:
    async with schemas() as decoder:
        return (await decoder.views([data], 10_000))[data]


async def test_avro_with_a_reference_logical_types_and_exact_numbers() -> None:
    data = avro(
        {
            "id": EXACT,
            "price": Decimal("123456789012345678.90"),
            "at": datetime(2026, 1, 31, 8, tzinfo=UTC),
            "raw": b"\0\xff",
            "buyer": {"name": "Ada"},
        }
    )
    found = await view(framed(AVRO, data))
    assert (found["format"], found["bytes"]) == ("avro", len(data) + 5)
    assert found["schema"] == {"id": AVRO, "name": "com.example.Order", "subject": "orders-value version 3"}
    assert f'"id": {EXACT}' in found["text"]
    assert json.loads(found["text"]) == {
        "id": EXACT,
        "price": "123456789012345678.90",
        "at": "2026-01-31T08:00:00+00:00",
        "raw": "0x00ff",
        "buyer": {"name": "Ada"},
    }


async def test_protobuf_with_a_reference_and_the_path_of_the_message() -> None:
    ada = b"\x0a\x03Ada"
    order = b"\x08" + b"\x81\x80\x80\x80\x80\x80\x80\x10" + b"\x12\x05" + ada
    found = await view(framed(PROTOBUF, b"\x02\x02" + order))
    assert (found["format"], found["schema"]["name"]) == ("protobuf", "shop.Order")
    assert json.loads(found["text"]) == {"id": str(EXACT), "buyer": {"name": "Ada"}}
    first = await view(framed(PROTOBUF, b"\x00\x0a\x01x"))
    assert (first["schema"]["name"], json.loads(first["text"])) == ("shop.First", {"a": "x"})
    inner = await view(framed(PROTOBUF, b"\x04\x02\x00\x08\x07"))
    assert (inner["schema"]["name"], json.loads(inner["text"])) == ("shop.Order.Line", {"count": "7"})


@pytest.mark.parametrize("person", [PEOPLE, described("Person", NAME)])
@pytest.mark.parametrize("order", [ORDER_TEXT, described("Order", BUYER, "people/person.proto")])
def test_protobuf_by_descriptors_in_place_of_texts(person: str, order: str) -> None:
    """Apicurio returns what Confluent's client for Python registers: base64, in any mix with texts."""
    shown, _ = protobuf_decoder(order, [("people/person.proto", person)])(b"\x00\x0a\x05\x0a\x03Ada")
    assert json.loads(shown) == {"buyer": {"name": "Ada"}}


async def test_json_with_a_schema_stays_as_it_was_written() -> None:
    found = await view(framed(JSON, b'{"n":9007199254740993.10}'))
    assert (found["format"], found["text"]) == ("json", '{\n  "n": 9007199254740993.10\n}')


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (framed(99, b"x"), "not decoded by schema 99: the registry does not have /schemas/ids/99"),
        (framed(AVRO, b"\x02"), "not decoded by schema 1: "),
        (framed(AVRO, avro(SMALL) + b"x"), "1 bytes are left"),
        (framed(JSON, b"{"), "not decoded by schema 3: no JSON"),
        (framed(PROTOBUF, b"\x02\x08"), "the schema does not have the message"),
        (framed(PROTOBUF, b"\xff"), "the path of the message is cut off"),
        (framed(NONSENSE, b"\x00"), "no valid .proto"),
        (framed(OUTSIDE, b"\x00"), "a reference is outside the schema's folder"),
    ],
)
async def test_bytes_that_cannot_be_decoded_are_shown_with_the_reason(data: bytes, reason: str) -> None:
    found = await view(data)
    assert found["format"] == "hex"
    assert bytes.fromhex(found["text"]) == data
    assert reason in found["reason"]


async def test_hostile_bytes_end_only_their_own_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array that claims 2^40 elements without a byte each, and messages in messages."""
    monkeypatch.setattr(decoding, "TRY_TIMEOUT_S", 1.0)
    monkeypatch.setattr(decoding, "ONE_TIMEOUT_S", 5.0)
    claim = framed(MANY, b"\x80\x80\x80\x80\x80\x40" + b"\x00")
    deep = b""
    for _ in range(300):
        size = len(deep)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        deep = b"\x0a" + length + deep
    nested = framed(NESTED, b"\x00" + deep)
    good = framed(PROTOBUF, b"\x00\x0a\x01x")
    async with schemas() as decoder:
        found = await decoder.views([good, nested, claim, framed(99, b"x"), b"no header"], 1_000)
    assert found[good]["format"] == "protobuf"
    assert found[nested]["reason"].startswith("not decoded by schema 5: ")
    assert found[claim]["reason"].startswith("not decoded by schema 4: ")
    assert decoder.outcomes == {
        ("protobuf", "decoded"): 1,
        ("protobuf", "failed"): 1,
        ("avro", "failed"): 1,
        ("unknown", "failed"): 1,
    }


async def test_a_registry_that_redirects_hangs_floods_or_talks_nonsense_is_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S7."""
    monkeypatch.setattr(module, "BYTES_MAX", 10_000)
    released = asyncio.Event()

    async def redirects(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://169.254.169.254/latest/meta-data")

    async def hangs(_: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    async def floods(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b'"' + b"x" * 20_000 + b'"')

    async def nonsense(_: web.Request) -> web.StreamResponse:
        return web.json_response([1])

    for answer, reason in (
        (redirects, "status 302"),
        (hangs, "did not answer within"),
        (floods, "more than"),
        (nonsense, "is not a schema"),
    ):
        asked: list[str] = []
        monkeypatch.setattr(module, "TIMEOUT_S", 0.3 if answer is hangs else 60.0)
        async with registry(answer, asked) as found:
            with pytest.raises(RegistryTrouble, match=reason):
                await found.schema(7)
            with pytest.raises(RegistryTrouble, match=reason):
                await found.schema(7)
        assert asked == ["/schemas/ids/7"], "a failure is kept for a moment"
    released.set()


async def test_a_schema_is_asked_for_once_and_references_in_a_circle_end() -> None:
    circle = {"schema": "{}", "references": [{"name": "a", "subject": "a", "version": 1}]}

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(circle)

    asked: list[str] = []
    async with registry(None, asked) as found:
        first, second = await asyncio.gather(found.schema(JSON), found.schema(JSON))
        assert first is second
        assert asked.count(f"/schemas/ids/{JSON}") == 1
    async with registry(answer) as found:
        assert [name for name, _ in (await found.schema(1)).references] == ["a"]


def test_without_a_registry_the_reason_names_the_option() -> None:
    shown = Showing().of(framed(7, b"\xff"), Format.AUTO)
    assert "it may be of schema 7: the option --schema-registry decodes it" in shown["reason"]
    assert "schema" not in Showing().of((42).to_bytes(8, "big"), Format.AUTO)["reason"]


@given(st.binary(max_size=12))
def test_any_bytes_have_a_path_or_are_refused(data: bytes) -> None:
    try:
        path, at = message_path(data)
    except ValueError:
        return
    assert path
    assert at <= len(data)


def test_only_a_zero_byte_and_an_id_are_a_header() -> None:
    assert schema_id_of(framed(7, b"")) == 7
    assert [schema_id_of(each) for each in (None, b"", b"\0\0\0\0", b"\1\0\0\0\7x")] == [None] * 4


ORDER_JSON = {
    "id": EXACT,
    "price": "123456789012345678.90",
    "at": "2026-01-31T08:00:00+00:00",
    "raw": "0x00ff",
    "buyer": {"name": "Ada"},
}


async def test_what_a_page_shows_of_avro_and_protobuf_is_written_again_as_the_same_bytes() -> None:
    order = avro(
        {
            "id": EXACT,
            "price": Decimal("123456789012345678.90"),
            "at": datetime(2026, 1, 31, 8, tzinfo=UTC),
            "raw": b"\0\xff",
            "buyer": {"name": "Ada"},
        }
    )
    first = framed(PROTOBUF, b"\x00\x0a\x01x")
    async with schemas() as known:
        assert await known.encoded("orders-value", json.dumps(ORDER_JSON)) == framed(AVRO, order)
        assert await known.encoded("shop-value", '{"a": "x"}') == first


@pytest.mark.parametrize(
    ("subject", "text", "reason"),
    [
        ("orders-value", "{", "Expecting property name"),
        ("orders-value", "[]", "the value is not an object"),
        ("orders-value", json.dumps(ORDER_JSON | {"idd": 1}), "has the field idd, which com.example.Order"),
        (
            "orders-value",
            json.dumps({**ORDER_JSON, "buyer": {}}),
            "the value.buyer does not have the field name",
        ),
        ("orders-value", json.dumps(ORDER_JSON | {"id": 1 << 63}), "the value.id is not a number of 64 bits"),
        ("orders-value", json.dumps(ORDER_JSON | {"id": True}), "the value.id is not a whole number"),
        (
            "orders-value",
            json.dumps(ORDER_JSON | {"price": 1.5}),
            "the value.price is not a decimal in quotes",
        ),
        ("orders-value", json.dumps(ORDER_JSON | {"price": "1.005"}), "with 2 places at most"),
        ("orders-value", json.dumps(ORDER_JSON | {"price": "1e19"}), "of 20 digits at most"),
        ("orders-value", json.dumps(ORDER_JSON | {"price": "1E999999999"}), "of 20 digits at most"),
        ("orders-value", json.dumps(ORDER_JSON | {"at": "2026-01-31T08:00"}), "a time with a time zone"),
        ("orders-value", json.dumps(ORDER_JSON | {"at": "2026-01-31T08:00:00.0001Z"}), "whole milliseconds"),
        ("orders-value", json.dumps(ORDER_JSON | {"raw": "00ff"}), "the value.raw is not bytes in hex"),
        ("shop-value", '{"b": "x"}', 'no field named "b"'),
        ("nonsense", "{}", "no valid .proto"),
        ("json-value", "{}", "it is a JSON Schema"),
    ],
)
async def test_what_is_not_of_its_schema_is_not_written(subject: str, text: str, reason: str) -> None:
    async with schemas() as known:
        with pytest.raises(Unwritten, match=reason):
            await known.encoded(subject, text)


@pytest.mark.parametrize("subject", ["", "..", "none", "x" * 1_000, "a/../../schemas/ids/1"])
async def test_a_subject_that_the_registry_does_not_have_is_a_reason(subject: str) -> None:
    async with schemas() as known:
        with pytest.raises(RegistryTrouble):
            await known.encoded(subject, "{}")


UNION = [
    "null",
    "boolean",
    "long",
    "double",
    {"type": "enum", "name": "Size", "symbols": ["S", "M"]},
    {"type": "fixed", "name": "Two", "size": 2},
    "string",
    {"type": "array", "items": "long"},
    {"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]},
    {"type": "record", "name": "B", "fields": [{"name": "b", "type": ["null", "B"], "default": None}]},
]
UNIONS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["S", "M", "0x00ff", "other"])
    | st.lists(st.integers(-9, 9))
    | st.builds(lambda number: {"a": number}, st.integers(-9, 9))
    | st.just({"b": {"b": None}})
)


@given(UNIONS)
def test_every_value_of_a_union_is_read_as_it_was_written(value: object) -> None:
    data = avro_encoder(json.dumps(UNION), [])(json.dumps(value))
    text, _ = avro_decoder(json.dumps(UNION), [])(data)
    assert json.loads(text) == value


async def test_a_text_that_takes_too_long_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "TRY_TIMEOUT_S", 0.0)
    async with schemas() as known:
        with pytest.raises(Unwritten, match="was ended"):
            await known.encoded("orders-value", json.dumps(ORDER_JSON))
        monkeypatch.undo()
        assert await known.encoded("shop-value", '{"a": "x"}')
