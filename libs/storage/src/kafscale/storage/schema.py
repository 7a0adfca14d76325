"""The schema version of stored values, and the error for a value that cannot be read.

The law: a damaged value affects only the data that it describes, never a process. Code that reads a stored value treats
`UnreadableValue` as an external failure. A reader refuses a value with another schema: to guess at a value that a newer
KafScale wrote could lose records. The table of docs/protocol/damage.md lists the effect for each kind of value.
"""

from __future__ import annotations

SCHEMA = 1


class UnreadableValue(Exception):
    """This version cannot read a stored value. The value is never treated as absent."""


class UnknownSchema(UnreadableValue):
    """A newer KafScale or another program wrote the value."""

    def __init__(self, what: str, found: int, newest: int = SCHEMA) -> None:
        readable = f"schema {SCHEMA}" if newest == SCHEMA else f"schemas {SCHEMA} to {newest}"
        super().__init__(
            f"{what} has schema {found}, this version of KafScale reads {readable}; "
            "run the version that wrote it, or a newer one"
        )
        self.what = what
        self.found = found


def require_schema(what: str, found: int, newest: int = SCHEMA) -> None:
    if not SCHEMA <= found <= newest:
        raise UnknownSchema(what, found, newest)
