"""A partition's log as head and meta say at one revision: what readers start from, and what a change compares. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafscale.log.heads import TAIL_MAX, Head, ManifestRef, Meta, Seg, decode_head, decode_meta
from kafscale.storage.etcd.ops import Range, RangeResult
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """A partition without a head has never been claimed: its log is empty."""

    head: Head | None = None
    meta: Meta = field(default_factory=Meta)

    @property
    def next(self) -> int:
        """The high watermark."""
        return 0 if self.head is None else self.head.next

    @property
    def lso(self) -> int:
        """The last stable offset, at which readers of committed data stop. What is open below the log start is deleted,
        and holds nobody up."""
        return 0 if self.head is None else min(max(self.head.lso, self.meta.log_start), self.head.next)

    @property
    def transactional(self) -> bool:
        """Whether the log has ever had a transaction."""
        return self.head is not None and self.head.transactional

    @property
    def log_start(self) -> int:
        return self.meta.log_start

    @property
    def tail(self) -> tuple[Seg, ...]:
        return () if self.head is None else self.head.tail

    @property
    def tail_start(self) -> int:
        """From here on the tail lists the segments; the manifests list those before."""
        return self.tail[0].base if self.tail else self.next

    @property
    def tail_full(self) -> bool:
        """Commits wait for a checkpoint."""
        return len(self.tail) >= TAIL_MAX

    @property
    def chunks(self) -> tuple[ManifestRef, ...]:
        return self.meta.chunks

    @property
    def bytes(self) -> int:
        """Of the committed segments that retention and compaction have left."""
        return (0 if self.head is None else self.head.bytes) - self.meta.freed

    @property
    def snap_key(self) -> str:
        """Of the producer snapshot's object, "" for none."""
        return "" if self.head is None else self.head.snap_key

    @property
    def torn(self) -> bool:
        """A checkpoint moves segments from the head to the meta in one transaction. If only the head's half is known,
        segments are listed in neither. No answer may be made from such a state."""
        return self.tail_start > self.meta.manifest_end

    def leader_epoch(self, topic: Topic) -> int:
        """A log that was never claimed has the epoch that its first owner will have."""
        return topic.first_epoch if self.head is None else self.head.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState(LogState):
    """As one read of etcd found it, with what a change of meta compares (`meta_swap.Seen`). Revision 0: no such key."""

    head_created: int = 0
    meta_revision: int = 0


def state_reads(keys: Keyspace, topic_id: TopicId, partition: int) -> tuple[Range, Range]:
    """For one transaction, so that both are of one revision."""
    return Range(keys.head(topic_id, partition)), Range(keys.meta(topic_id, partition))


def read_state(heads: RangeResult, metas: RangeResult) -> StoredState:
    """The answers to `state_reads`. Raises UnreadableValue."""
    head, meta = (found.kvs[0] if found.kvs else None for found in (heads, metas))
    return StoredState(
        head=None if head is None else decode_head(head.value),
        head_created=0 if head is None else head.create_revision,
        meta=Meta() if meta is None else decode_meta(meta.value),
        meta_revision=0 if meta is None else meta.mod_revision,
    )
