"""Which topic names are legal: Kafka's rule, so that a name is also a safe folder in the bucket."""

from __future__ import annotations

import re

NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_reason(name: str) -> str | None:
    """Why Kafka would refuse `name` as a topic's, or None when it is legal."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name cannot be '{name}'"
    if len(name) > NAME_LENGTH_MAX:
        return f"the topic name has {len(name)} characters, {NAME_LENGTH_MAX} at most"
    if _LEGAL.fullmatch(name) is None:
        return f"the topic name {name!r} holds characters other than ASCII letters, digits, '.', '_' and '-'"
    return None
