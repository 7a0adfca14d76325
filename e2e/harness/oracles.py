"""Requests written and answers read by codecs that share no code with KafScale's own.

kafka-python 3 reads Kafka's definitions and knows almost every API; kio, made from the same definitions, knows the
group protocol of KIP-848, which kafka-python lacks; kafka-python's older codec is written by hand and still knows
the versions that Kafka 4 dropped.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import struct
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, Protocol

from kafscale.wire.errors import ERROR_CODES
from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.old.types import Array, Schema
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

API_VERSIONS = 18
CLIENT_ID = b"oracle"
BATCH_BYTES = 1 << 16
RECORD_MS = 1_700_000_000_000

Content = Mapping[str, Any]
"""A message by the names of its fields, of all versions together; what a version lacks is not sent."""


class Codec(Protocol):
    """Of one API in one version."""

    @property
    def flexible(self) -> bool: ...

    def request(self, content: Content) -> bytes:
        """The body of a request."""
        ...

    def response(self, body: bytes) -> Any:
        """An answer's body as dictionaries and lists. Asserts that no byte is left over."""
        ...


def codec_of(key: int, version: int) -> Codec | None:
    """The first of the three that knows both the request and the answer."""
    for find in (_kafka_python, _kio, _by_hand):
        codec = find(key, version)
        if codec is not None:
            return codec
    return None


def request_frame(key: int, version: int, correlation_id: int, content: Content) -> bytes:
    """A whole request without its length."""
    codec = codec_of(key, version)
    assert codec is not None, f"no independent codec knows API {key} v{version}"
    head = struct.pack(">hhih", key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return head + (b"\0" if codec.flexible else b"") + codec.request(content)


def read_answer(key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and content of an answer. ApiVersions alone never has tagged fields in its header."""
    codec = codec_of(key, version)
    assert codec is not None, f"no independent codec knows API {key} v{version}"
    (correlation_id,) = struct.unpack_from(">i", frame)
    if not codec.flexible or key == API_VERSIONS:
        return correlation_id, codec.response(frame[4:])
    assert frame[4] == 0, "tagged fields in the header"
    return correlation_id, codec.response(frame[5:])


def one_record(magic: int) -> bytes:
    """A record as kafka-python writes it: a message of magic 0 or 1, or a batch of magic 2."""
    if magic < 2:
        messages = LegacyRecordBatchBuilder(magic, 0, BATCH_BYTES)
        messages.append(0, RECORD_MS, None, b"v")
        return bytes(messages.build())
    batch = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, BATCH_BYTES)
    batch.append(0, RECORD_MS, None, b"v", [])
    return bytes(batch.build())


def errors_in(value: Any) -> Iterator[int]:
    """Every error code of an answer, at whatever depth."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name in ERROR_CODES:
                yield int(each)
            else:
                yield from errors_in(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from errors_in(each)


# -- kafka-python's, from Kafka's definitions ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FromDefinitions:
    asking: Any
    answering: Any
    version: int

    @property
    def flexible(self) -> bool:
        return bool(self.asking.flexible_version_q(self.version))

    def request(self, content: Content) -> bytes:
        return bytes(_filled(self.asking, content, self.version).encode(version=self.version))

    def response(self, body: bytes) -> Any:
        value = self.answering.decode(body, version=self.version)
        value._header = None  # its decode leaves it unset, and its encode asks for it
        assert bytes(value.encode(version=value.version)) == body, "kafka-python did not read every byte"
        return value.to_dict(json=False)


def _filled(container: Any, content: Content, version: int) -> Any:
    values: dict[str, Any] = {}
    for field in container._struct._fields:
        if field.name in content and field.for_version_q(version):
            value = content[field.name]
            if value is not None and field.is_struct_array():
                value = [_filled(getattr(container, field.type_str), each, version) for each in value]
            values[field.name] = value
    return container(version=version, **values)


@cache
def _classes() -> dict[tuple[int, bool], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for package in ("admin", "consumer", "metadata", "producer"):
            importlib.import_module(f"kafka.protocol.{package}")
    whole = (cls for cls in type.__subclasses__(ApiMessage) if cls._class_version is None)
    return {(cls.API_KEY, cls.is_request()): cls for cls in whole}


def _kafka_python(key: int, version: int) -> Codec | None:
    pair = _classes().get((key, True)), _classes().get((key, False))
    for cls in pair:
        if cls is None or not cls.valid_versions[0] <= version <= cls.valid_versions[1]:
            return None
    return _FromDefinitions(*pair, version)


# -- kio's -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kio:
    asking: Any
    answering: Any

    @property
    def flexible(self) -> bool:
        return bool(self.asking.__flexible__)

    def request(self, content: Content) -> bytes:
        names = {field.name for field in dataclasses.fields(self.asking)}
        out = BytesIO()
        known = {name: value for name, value in content.items() if name in names}
        entity_writer(self.asking)(out, self.asking(**known))
        return out.getvalue()

    def response(self, body: bytes) -> Any:
        value, size = entity_reader(self.answering)(body, 0)
        assert size == len(body), "kio did not read every byte"
        return dataclasses.asdict(value)


def _kio(key: int, version: int) -> Codec | None:
    try:
        return _Kio(load_request_schema(key, version), load_response_schema(key, version))
    except (UnknownAPIKey, UnknownEntity):
        return None


# -- kafka-python's, written by hand ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ByHand:
    asking: Any
    answering: Any
    flexible: bool = False

    def request(self, content: Content) -> bytes:
        return bytes(self.asking.SCHEMA.encode(_in_order(self.asking.SCHEMA, content)))

    def response(self, body: bytes) -> Any:
        stream = BytesIO(body)
        value = self.answering.decode(stream)
        assert stream.read() == b"", "kafka-python's old codec did not read every byte"
        return value.to_object()


def _in_order(schema: Any, content: Content) -> list[Any]:
    values = []
    for name, kind in zip(schema.names, schema.fields, strict=True):
        value = content[name]
        if isinstance(kind, Array) and isinstance(kind.array_of, Schema) and value is not None:
            value = [_in_order(kind.array_of, each) for each in value]
        values.append(value)
    return values


@cache
def _old_classes() -> dict[tuple[int, int, bool], Any]:
    found: dict[tuple[int, int, bool], Any] = {}
    for module in pkgutil.iter_modules(importlib.import_module("kafka.protocol.old").__path__):
        for name, cls in vars(importlib.import_module(f"kafka.protocol.old.{module.name}")).items():
            if name.endswith(f"_v{getattr(cls, 'API_VERSION', None)}"):
                found[cls.API_KEY, cls.API_VERSION, "Request" in name] = cls
    return found


def _by_hand(key: int, version: int) -> Codec | None:
    pair = _old_classes().get((key, version, True)), _old_classes().get((key, version, False))
    return None if None in pair else _ByHand(*pair)
