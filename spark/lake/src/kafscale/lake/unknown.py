"""A name that was given and does not exist: the same sentence in every command and job. Imports nothing heavy."""

from __future__ import annotations

from typing import Final

NO_TOPIC: Final = "does not exist; `kafscale topics list` shows what does"
NO_GROUP: Final = "does not exist; `kafscale groups list` shows what does"


class UnknownName(Exception):
    """The text is a sentence for the user."""


class UnknownTopic(UnknownName):
    def __init__(self, name: str) -> None:
        super().__init__(f"topic '{name}' {NO_TOPIC}")


class UnknownGroup(UnknownName):
    def __init__(self, name: str) -> None:
        super().__init__(f"group '{name}' {NO_GROUP}")
