"""What an operation says to a person: why it failed, how much there is, how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Of what is being done: its name, how much is done, and the total, which is 0 if it is not known."""


class Trouble(Exception):
    """The work failed. The text is a sentence for the user."""


def counted(number: int, noun: str) -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
