"""A partition's log start: how it is read, and the one way in which it moves.

Pure. The laws: the start only grows, it never passes the high watermark, and it moves by a compare-and-swap of meta
(`meta_swap`), so a checkpoint that was prepared from an older meta fails instead of putting the start back. Objects
below the start stay where they are. Retention deletes them later, after the reads in flight (docs/protocol/commit.md).
"""

from __future__ import annotations

from dataclasses import replace

from kafscale.log.meta_swap import build_swap
from kafscale.log.state import StoredState, read_state, state_reads
from kafscale.storage.etcd.client import Compare, Txn, TxnResult
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.keys import Keyspace
from kafscale.storage.topics import Topic


def build_read(keyspace: Keyspace, topic: Topic, partition: int) -> Txn:
    """Head and meta at one revision, if the topic is still the one that was read."""
    return Txn(
        compare=(Compare(keyspace.topic(topic.name), "mod", "=", topic.mod_revision),),
        success=state_reads(keyspace, topic.topic_id, partition),
    )


def read_if_unchanged(result: TxnResult) -> StoredState | None:
    """The answer to `build_read`; None: the topic has changed, read it again."""
    return read_state(range_at(result, 0), range_at(result, 1)) if result.succeeded else None


def build_move(keyspace: Keyspace, topic: Topic, partition: int, state: StoredState, start: int) -> Txn:
    """Moves the start that was read to `start`; refused if meta has changed since, or the head is gone."""
    assert state.log_start < start <= state.next, (start, state)
    return build_swap(keyspace, topic.topic_id, partition, state, replace(state.meta, log_start=start))
