"""The schema version of stored values, and the error for a value that cannot be read.

The law: a damaged value affects only the data that it describes, never a process. Code that reads a stored value treats
`UnreadableValue` as an external failure. A reader refuses a value with another schema: to guess at a value that a newer
KafScale wrote could lose records. The table of docs/protocol/damage.md lists the effect for each kind of value.

A value may use features that a reader must know. Each is a bit, and the schema is `SCHEMA` plus the bits. So a value
has each of them independently of the others, and a value without features has the schema that every version reads.
"""

from __future__ import annotations

from typing import Protocol

from google.protobuf.message import DecodeError

SCHEMA = 1


class UnreadableValue(Exception):
    """This version cannot read a stored value. The value is never treated as absent."""


class UnknownSchema(UnreadableValue):
    """A newer KafScale or another program wrote the value."""

    def __init__(self, what: str, found: int, features: int = 0) -> None:
        readable = [str(SCHEMA + some) for some in range(features + 1) if some & ~int(features) == 0]
        super().__init__(
            f"{what} has schema {found}, this version of KafScale reads {', '.join(readable)}; "
            "run the version that wrote it, or a newer one"
        )
        self.what = what
        self.found = found


def require_schema(what: str, found: int, features: int = 0) -> None:
    """`features`: the bits of those that this version reads. Raises UnknownSchema."""
    # int: the complement of a flag has only bits with names, so an unknown bit would pass
    if found < SCHEMA or (found - SCHEMA) & ~int(features):
        raise UnknownSchema(what, found, features)


class CorruptValue(UnreadableValue):
    """A stored value does not parse as what its key says it is."""

    def __init__(self, kind: str, cause: str) -> None:
        super().__init__(f"not a {kind}: {cause}")
        self.kind = kind


class Stored(Protocol):
    """A message of `store.proto` that is a whole value."""

    schema: int

    def ParseFromString(self, serialized: bytes, /) -> object: ...


def parse_value(message: Stored, data: bytes, kind: str, features: int = 0) -> None:
    """Fill `message`, or raise UnreadableValue with what is wrong with the bytes. `features`: as `require_schema`."""
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CorruptValue(kind, str(error)) from error
    require_schema(f"this {kind}", message.schema, features)


def checked_owner(kind: str, owner: str, handoff_to: str) -> None:
    """Raises CorruptValue unless they are what owner fields hold: `{node_id}/{boot_id}` and a node id, or nothing."""
    node_id, slash, boot_id = owner.partition("/")
    if owner and not (_is_number(node_id) and slash and boot_id):
        raise CorruptValue(kind, f"{owner!r} is no instance")
    if handoff_to and not _is_number(handoff_to):
        raise CorruptValue(kind, f"{handoff_to!r} is no node id")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
