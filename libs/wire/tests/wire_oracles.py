"""Two codecs that share no code with ours: kio (from Kafka's definitions) and kafka-python's (two of them).

kafka-python's new codec reads Kafka's definitions too; its old one is written by hand and knows the versions
that Kafka 4 has dropped.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import pkgutil
import random
import types
import typing
import uuid
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from typing import Any

from kio.index import UnknownEntity, load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from wire_values import Case

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    from kafka.protocol.api_message import ApiMessage


def kio_entity(case: Case) -> Any | None:
    """kio's class for a message in a version, when it has one."""
    try:
        module = load_payload_module(case.module.API_KEY, case.version, EntityType[case.kind])
    except UnknownEntity:
        return None
    return getattr(module, case.name)


def kio_read(entity: Any, data: bytes) -> Any:
    value, size = entity_reader(entity)(data, 0)
    assert size == len(data), "kio did not use every byte"
    return value


def kio_write(entity: Any, value: Any) -> bytes:
    out = BytesIO()
    entity_writer(entity)(out, value)
    return out.getvalue()


@cache
def _kafka_python_classes() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for package in ("admin", "consumer", "metadata", "producer"):
            parent = importlib.import_module(f"kafka.protocol.{package}")
            for module in pkgutil.iter_modules(parent.__path__):
                importlib.import_module(f"kafka.protocol.{package}.{module.name}")
    return {cls.__name__: cls for cls in _subclasses(ApiMessage)}


def _subclasses(cls: type) -> Iterator[type]:
    for child in type.__subclasses__(cls):
        yield child
        yield from _subclasses(child)


def kafka_python_class(case: Case) -> Any | None:
    """kafka-python's class when its definition covers the version."""
    cls = _kafka_python_classes().get(case.name)
    if cls is None:
        return None
    first, last = cls.valid_versions
    return cls if first <= case.version <= last else None


def kafka_python_read(case: Case, cls: Any, data: bytes) -> Any:
    value = cls.decode(data, version=case.version)
    value._header = None  # its decode leaves it unset, and its encode asks for it
    return value


def kafka_python_write(case: Case, value: Any) -> bytes:
    return bytes(value.encode(version=case.version))


# It declares the list of partitions as one number. The next version has the same layout, and an oracle.
WRONG_IN_OLD = "DescribeLogDirsRequest-v0"


@cache
def old_class(case: Case) -> Any | None:
    """kafka-python's hand-written class of an old version."""
    if str(case) == WRONG_IN_OLD:
        return None
    for module in pkgutil.iter_modules(importlib.import_module("kafka.protocol.old").__path__):
        package = importlib.import_module(f"kafka.protocol.old.{module.name}")
        cls = getattr(package, f"{case.name}_v{case.version}", None)
        if cls is not None:
            return cls
    return None


def kio_random(annotation: Any, kafka_type: str | None, rng: random.Random) -> Any:
    """A random value of a kio annotation, entities included; kio's own strategies take minutes."""
    options = [option for option in typing.get_args(annotation) if option is not type(None)]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        optional = len(options) < len(typing.get_args(annotation))
        return None if optional and rng.random() < 0.25 else kio_random(options[0], kafka_type, rng)
    if typing.get_origin(annotation) is tuple:
        return tuple(kio_random(options[0], kafka_type, rng) for _ in range(rng.choice((0, 1, 2, 9))))
    if dataclasses.is_dataclass(annotation):
        hints = _hints(annotation)
        fields = dataclasses.fields(annotation)
        return annotation(
            **{f.name: kio_random(hints[f.name], f.metadata.get("kafka_type"), rng) for f in fields}
        )
    return _kio_scalar(kafka_type or "", rng)


_hints = cache(typing.get_type_hints)


def _kio_scalar(kafka_type: str, rng: random.Random) -> Any:
    if kafka_type.startswith("int"):
        bits = int(kafka_type.removeprefix("int")) - 1
        return rng.randrange(-(1 << bits), 1 << bits)
    draw: dict[str, Callable[[], Any]] = {
        "bool": lambda: rng.random() < 0.5,
        "string": lambda: rng.choice(("", "a", "größe", "n" * 200)),
        "records": lambda: rng.randbytes(rng.choice((0, 1, 200))),
        "bytes": lambda: rng.randbytes(rng.choice((0, 1, 200))),
        "uuid": lambda: uuid.UUID(bytes=rng.randbytes(16)),
        "error_code": lambda: rng.choice(list(KioErrorCode)),
        "uint16": lambda: rng.randrange(1 << 16),
        "float64": lambda: rng.uniform(-1e9, 1e9),
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=rng.randrange(-(1 << 31), 1 << 31)),
        "timedelta_i64": lambda: datetime.timedelta(milliseconds=rng.randrange(1 << 40)),
        "datetime_i64": lambda: datetime.datetime.fromtimestamp(rng.randrange(1 << 31), datetime.UTC),
    }
    return draw[kafka_type]()
