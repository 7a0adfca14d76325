"""Protobuf to JSON, and back: grpcio-tools compiles `.proto` texts and descriptors. Only `child.py` imports it."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor

Decoder = Callable[[bytes], tuple[str, str]]
Encoder = Callable[[str], bytes]
_MAIN: Final = "kafscale_schema_of_this_record.proto"
_DESCRIPTOR: Final = re.compile(r"[A-Za-z0-9+/]+=*")
"""A FileDescriptorProto in base64, which Confluent's client for Python registers in place of a text. Registries other
than Confluent's give it back as it is. A text with a message has other characters."""
_INDEXES_MAX: Final = 32


def protobuf_decoder(text: str, references: Sequence[tuple[str, str]]) -> Decoder:
    """Raises ValueError and the errors of protobuf, as its result does."""
    pool = descriptor_pool.DescriptorPool()
    file = _compiled(text, references)
    for each in file.file:
        pool.Add(each)
    top = list(pool.FindFileByName(_MAIN).message_types_by_name.values())

    def decode(data: bytes) -> tuple[str, str]:
        path, at = message_path(data)
        kind = _message(top, path)
        message = message_factory.GetMessageClass(kind)()
        message.ParseFromString(data[at:])
        shown = json_format.MessageToJson(
            message, preserving_proto_field_name=True, ensure_ascii=False, descriptor_pool=pool
        )
        return shown, kind.full_name

    return decode


def protobuf_encoder(text: str, references: Sequence[tuple[str, str]]) -> Encoder:
    """Of the first message of the schema, as Confluent's serializer writes it. Raises as `protobuf_decoder`."""
    pool = descriptor_pool.DescriptorPool()
    for each in _compiled(text, references).file:
        pool.Add(each)
    top = list(pool.FindFileByName(_MAIN).message_types_by_name.values())
    kind = message_factory.GetMessageClass(_message(top, [0]))

    def encode(given: str) -> bytes:
        message = kind()
        json_format.Parse(given, message, descriptor_pool=pool)
        return b"\0" + message.SerializeToString()  # the path of the first message, in one byte

    return encode


def message_path(data: bytes) -> tuple[list[int], int]:
    """Which message of the schema it is (the path through nested ones), and where it begins. Raises ValueError."""
    count, at = _zigzag(data, 0)
    if count == 0:  # the first one, in one byte
        return [0], at
    if not 0 < count <= _INDEXES_MAX:
        raise ValueError("the path of the message is no path")
    path = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        path.append(index)
    return path, at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at == len(data):
            break
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError("the path of the message is cut off")


def _message(top: Sequence[Descriptor], path: Sequence[int]) -> Descriptor:
    among = top
    found: Descriptor | None = None
    for index in path:
        if not 0 <= index < len(among):
            raise ValueError("the schema does not have the message that the record names")
        found = among[index]
        among = found.nested_types
    assert found is not None, "a path has an index"
    return found


def _compiled(text: str, references: Sequence[tuple[str, str]]) -> descriptor_pb2.FileDescriptorSet:
    from grpc_tools import protoc

    described = descriptor_pb2.FileDescriptorSet()
    with TemporaryDirectory(prefix="kafscale-console-") as folder:
        for name, content in (*references, (_MAIN, text)):
            if _DESCRIPTOR.fullmatch(content.strip()) is not None:
                described.file.add().MergeFromString(b64decode(content))
                described.file[-1].name = name  # the subject's may be another one
                continue
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts:
                raise ValueError("a reference is outside the schema's folder")
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8")
        given, out = Path(folder, "given"), Path(folder, "set")
        given.write_bytes(described.SerializeToString())
        known = resources.files("grpc_tools") / "_proto"
        options = [f"-I{folder}", f"-I{known}", f"--descriptor_set_in={given}"]
        options += ["--include_imports", f"--descriptor_set_out={out}"]
        if protoc.main(["protoc", *options, _MAIN]) != 0:
            raise ValueError("the registry's schema is no valid .proto")
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
