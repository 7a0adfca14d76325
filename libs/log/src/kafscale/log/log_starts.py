"""A partition's log start: how it is read, and the one way in which it moves.

Pure. The laws: the start only grows, it never passes the high watermark, and it moves by a compare-and-swap of meta
(`meta_swap`), so a checkpoint that was prepared from an older meta fails instead of putting the start back. Objects
below the start stay where they are. Retention deletes them later, after the reads in flight (docs/protocol/commit.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafscale.log.heads import TAIL_MAX, Meta, decode_head, decode_meta
from kafscale.log.meta_swap import build_swap
from kafscale.storage.etcd.client import Compare, Range, Txn, TxnResult
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.keys import Keyspace
from kafscale.storage.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Where a log starts and ends at one revision, and what a change of the start compares (`meta_swap.Seen`).

    Revision 0: the key is absent. Without a head the log is empty, without a meta it starts at 0.
    """

    next: int = 0
    tail_full: bool = False  # commits wait for a checkpoint
    head_created: int = 0
    meta: Meta = Meta()
    meta_revision: int = 0

    @property
    def start(self) -> int:
        return self.meta.log_start


def build_read(keyspace: Keyspace, topic: Topic, partition: int) -> Txn:
    """Head and meta at one revision, if the topic is still the one that was read."""
    return Txn(
        compare=(Compare(keyspace.topic(topic.name), "mod", "=", topic.mod_revision),),
        success=(
            Range(keyspace.head(topic.topic_id, partition)),
            Range(keyspace.meta(topic.topic_id, partition)),
        ),
    )


def read_bounds(result: TxnResult) -> LogBounds | None:
    """The answer to `build_read`; None: the topic has changed, read it again."""
    if not result.succeeded:
        return None
    heads, metas = range_at(result, 0).kvs, range_at(result, 1).kvs
    head = decode_head(heads[0].value) if heads else None
    return LogBounds(
        next=head.next if head else 0,
        tail_full=head is not None and len(head.tail) >= TAIL_MAX,
        head_created=heads[0].create_revision if heads else 0,
        meta=decode_meta(metas[0].value) if metas else Meta(),
        meta_revision=metas[0].mod_revision if metas else 0,
    )


def build_move(keyspace: Keyspace, topic: Topic, partition: int, bounds: LogBounds, start: int) -> Txn:
    """Moves the start that was read to `start`; refused if meta has changed since, or the head is gone."""
    assert bounds.start < start <= bounds.next, (start, bounds)
    return build_swap(keyspace, topic.topic_id, partition, bounds, replace(bounds.meta, log_start=start))
