"""Partitions as text, and a stream's offsets, `{"topic:partition": next}`: all offsets below `next` were read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
Next: TypeAlias = Mapping[TopicPartition, int]
"""The first offset of each partition that has not been read."""


def text_of(place: TopicPartition) -> str:
    return f"{place[0]}:{place[1]}"


def dump(offsets: Next) -> dict[str, int]:
    """Sorted, because Spark compares the text."""
    return {text_of(place): offsets[place] for place in sorted(offsets)}


def load(text: Mapping[str, Any]) -> dict[TopicPartition, int]:
    found = {}
    for name, offset in text.items():
        topic, _, partition = name.rpartition(":")
        found[topic, int(partition)] = int(offset)
    return found
