"""The transaction that changes a partition's head: the writer's wish as etcd is asked for it, and its refusal."""

import structlog
from kafscale.produce.log.model import CommitHead, Instant, PartitionId, StepDownReason
from kafscale.produce.log.writer import PartitionWriter
from kafscale.runtime.committer import Settled
from kafscale.storage.claims import head_in
from kafscale.storage.etcd.client import Compare, Put, Range, Txn
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import UnreadableValue

log = structlog.get_logger(__name__)


def head_txn(keyspace: Keyspace, id_: PartitionId, action: CommitHead) -> Txn:
    """If head (and meta) are as expected they are put, else the head is read."""
    key = keyspace.head(id_.topic_id, id_.partition)
    compares = [Compare(key, "mod", "=", action.expected_revision)]
    puts = [Put(key, action.value)]
    if action.meta is not None:
        meta_key = keyspace.meta(id_.topic_id, id_.partition)
        compares.append(Compare(meta_key, "mod", "=", action.meta.expected_revision))
        puts.append(Put(meta_key, action.meta.value))
    return Txn(compare=tuple(compares), success=tuple(puts), failure=(Range(key),))


def refused(id_: PartitionId, writer: PartitionWriter, txn: int, answer: Settled, now: Instant) -> None:
    """Tell the writer by what head it was refused. One that cannot be read shows nothing, as one that is gone:
    what only this transaction carried was not committed, and what is uncertain stays so."""
    try:
        head, revision = head_in(answer.result)
    except UnreadableValue as error:
        log.error("the head cannot be read", topic=id_.topic, partition=id_.partition, why=str(error))
        head, revision = None, 0
        writer.step_down(StepDownReason.DAMAGED, now)
    writer.commit_refused(txn, head, revision, ambiguous=answer.ambiguous, now=now)
