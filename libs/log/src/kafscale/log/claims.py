"""The transactions by which a partition changes hands. `storage.coordination` says who may claim it.

Pure. The laws: a claim is one compare-and-swap on the head and raises the epoch, which alone is the fence. Every other
compare only keeps claimers polite: a live owner is never robbed. The head and the small owner record are written in the
same transaction, so no reader sees them differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafscale.log.heads import Head, Meta, decode_head, decode_meta, encode_head
from kafscale.storage.coordination import Grounds, OwnerRecord, encode_owner, owner_gone
from kafscale.storage.etcd.client import Compare, Put, Range, Txn, TxnResult
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.topics import Topic

ROLE = "produce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One prepared claim: the nested transaction, and the head that it writes."""

    topic: Topic
    partition: int
    head: Head
    grounds: Grounds
    txn: Txn


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """The partition is ours. `meta` was read in the claim's own transaction: no later one fits better."""

    head: Head
    revision: int  # mod_revision of the head
    meta: Meta
    meta_revision: int  # 0 when there is none yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The compare failed. What the failure branch read, at the revision of the answer."""

    head: Head | None
    revision: int  # mod_revision of that head, 0 without one
    topic_revision: int  # mod_revision of the topic's key, 0 when it is gone
    head_lost: bool = False  # there is none, but keys exist that each claim writes with it


def build_claim(
    keyspace: Keyspace,
    topic: Topic,
    partition: int,
    *,
    head: Head | None,
    revision: int,
    me: str,
    why: Grounds,
) -> Claim:
    """The claim of §"ownership": head at `revision` (0: none), the topic as read, the owner as seen."""
    key = keyspace.head(topic.topic_id, partition)
    if head is None:
        assert revision == 0, revision
        claimed = Head(epoch=topic.first_epoch, owner=me, topic=topic.name)
    else:
        claimed = replace(head, epoch=head.epoch + 1, owner=me, handoff_to="")
    topic_key, meta_key = keyspace.topic(topic.name), keyspace.meta(topic.topic_id, partition)
    compares = [
        Compare(key, "mod", "=", revision),
        Compare(topic_key, "mod", "=", topic.mod_revision),
    ]
    if why is Grounds.OWNER_GONE:
        assert head is not None, "an owner without a head"
        compares.append(owner_gone(keyspace, ROLE, head.owner))
    if head is None:
        # A head that is gone while these exist was lost, and its log with it: no instance may begin another log.
        compares += (
            Compare(key, "version", "=", 0) for key in (keyspace.owner(topic.topic_id, partition), meta_key)
        )
    txn = Txn(
        compare=tuple(compares),
        success=(
            Put(key, encode_head(claimed)),
            Put(keyspace.owner(topic.topic_id, partition), encode_owner(_record(claimed))),
            Range(meta_key),
        ),
        failure=(Range(key), Range(topic_key, keys_only=True), Range(meta_key)),
    )
    return Claim(topic=topic, partition=partition, head=claimed, grounds=why, txn=txn)


def read_claim(claim: Claim, result: TxnResult, revision: int) -> Won | Lost:
    """`result` is the nested answer; `revision` the one of the whole request, the only reliable one.

    A failed compare whose head shows this very claim means that an earlier try of it was applied.
    """
    meta, meta_revision = _meta_in(result)
    if result.succeeded:
        return Won(head=claim.head, revision=revision, meta=meta, meta_revision=meta_revision)
    head, head_revision = head_in(result)
    if head is not None and (head.owner, head.epoch) == (claim.head.owner, claim.head.epoch):
        return Won(head=head, revision=head_revision, meta=meta, meta_revision=meta_revision)
    topics = range_at(result, 1).kvs
    topic_revision = topics[0].mod_revision if topics else 0
    return Lost(
        head=head,
        revision=head_revision,
        topic_revision=topic_revision,
        head_lost=head is None
        and claim.grounds is Grounds.FIRST
        and topic_revision == claim.topic.mod_revision,
    )


def build_release(
    keyspace: Keyspace, topic_id: TopicId, partition: int, *, released: Head, revision: int
) -> Txn:
    """Give the partition away: `released` has no owner, and a node in `handoff_to` may claim at once."""
    assert not released.owner, released.owner
    key = keyspace.head(topic_id, partition)
    return Txn(
        compare=(Compare(key, "mod", "=", revision),),
        success=(
            Put(key, encode_head(released)),
            Put(keyspace.owner(topic_id, partition), encode_owner(_record(released))),
        ),
        failure=(Range(key),),
    )


def head_in(result: TxnResult) -> tuple[Head | None, int]:
    """The head that the failure branch of a nested transaction read first, and its mod_revision."""
    kvs = range_at(result, 0).kvs
    return (decode_head(kvs[0].value), kvs[0].mod_revision) if kvs else (None, 0)


def _meta_in(result: TxnResult) -> tuple[Meta, int]:
    kvs = range_at(result, 2).kvs
    return (decode_meta(kvs[0].value), kvs[0].mod_revision) if kvs else (Meta(), 0)


def _record(head: Head) -> OwnerRecord:
    return OwnerRecord(epoch=head.epoch, owner=head.owner, handoff_to=head.handoff_to)
