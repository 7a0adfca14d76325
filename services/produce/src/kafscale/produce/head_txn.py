"""The transaction that changes a partition's head: what the writer asks for, as etcd is asked for it."""

from kafscale.produce.log.model import CommitHead, PartitionId
from kafscale.storage.etcd import Compare, Put, Range, Txn
from kafscale.storage.keys import Keyspace


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
