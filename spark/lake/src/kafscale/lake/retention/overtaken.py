"""Somebody else was faster every time."""

from __future__ import annotations


class Overtaken(Exception):
    """What was read had changed under each of the tries to change it; the next run goes on from there."""

    def __init__(self, what: str, tries: int) -> None:
        super().__init__(f"{what} changed under each of {tries} tries; the next run goes on from here")
        self.what = what
