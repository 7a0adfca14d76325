"""What OffsetCommit and TxnOffsetCommit check of an offset, before the group does."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups import topic_lookup
from kafscale.runtime.etcd_space import Use
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode

SMALL_METADATA_BYTES = 64


class AskedOffset(Protocol):
    """A partition of a request."""

    @property
    def partition_index(self) -> int: ...

    @property
    def committed_metadata(self) -> str | None: ...


def refusal_of(context: CoordinatorContext, topic: Topic | ErrorCode, asked: AskedOffset) -> ErrorCode:
    error = topic_lookup.refusal_of(topic, asked.partition_index)
    if error is not ErrorCode.NONE:
        return error
    if _java_length(asked.committed_metadata or "") > context.settings.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def need_room(context: CoordinatorContext, group: str, offsets: Collection[CommittedOffset]) -> None:
    """Raises GroupFailed while etcd is too full.

    Small metadata is accepted as long as offsets are, because Kafka Streams stores its stream time in it.
    """
    metadata = [len(offset.metadata.encode()) for offset in offsets]
    use = Use.NEW if max(metadata, default=0) > SMALL_METADATA_BYTES else Use.KNOWN
    context.groups.need_room(use, sum(metadata) + len(group) * len(offsets), len(offsets))


def _java_length(text: str) -> int:
    """In UTF-16 units. Kafka compares this number with `offset.metadata.max.bytes`, which is no count of bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
