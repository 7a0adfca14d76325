"""What can be wrong with a stored value, and the version of its meaning.

The law: damage harms what the value is about, never a process. Whoever reads a stored value takes `UnreadableValue`
for the world's failure. A reader that meets a higher schema refuses with a sentence: guessing at a value that a newer
KafScale wrote could lose records. What happens to each kind of value is the table of docs/protocol/damage.md.
"""

from __future__ import annotations

SCHEMA = 1


class UnreadableValue(Exception):
    """Something is stored there, and this version cannot read it. It is never taken for absent."""


class UnknownSchema(UnreadableValue):
    """A stored value was written by a newer KafScale, or by something else."""

    def __init__(self, what: str, found: int) -> None:
        super().__init__(
            f"{what} has schema {found}, this version of KafScale reads schema {SCHEMA}; "
            "run the version that wrote it, or a newer one"
        )
        self.what = what
        self.found = found


def require_schema(what: str, found: int) -> None:
    if found != SCHEMA:
        raise UnknownSchema(what, found)
