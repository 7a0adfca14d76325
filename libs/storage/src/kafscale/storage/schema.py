"""The version of a stored value's meaning. A reader that meets a higher one refuses with a sentence:
guessing at a value that a newer KafScale wrote could lose records."""

from __future__ import annotations

SCHEMA = 1


class UnknownSchema(Exception):
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
