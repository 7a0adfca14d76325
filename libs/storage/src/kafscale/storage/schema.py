"""The schema version of stored values, and the error for a value that cannot be read.

The law: a damaged value affects only the data that it describes, never a process. Code that reads a stored value treats
`UnreadableValue` as an external failure. A reader refuses a value with another schema: to guess at a value that a newer
KafScale wrote could lose records. The table of docs/protocol/damage.md lists the effect for each kind of value.

A value may use features that a reader must know. Each is a bit, and the schema is `SCHEMA` plus the bits. So a value
has each of them independently of the others, and a value without features has the schema that every version reads.
"""

from __future__ import annotations

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
