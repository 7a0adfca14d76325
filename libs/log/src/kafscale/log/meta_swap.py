"""The compare-and-swap of a partition's meta, with bounded tries.

The laws. A swap compares meta's revision, so a change that was prepared from an older meta never replaces a newer one.
It also compares when the head was created: a deleted topic has no head, so no meta is left behind for it. It does not
compare the head's revision, because the high watermark only grows while the key exists, and commits need not wait.
An unknown outcome is never taken for a failure: the same transaction is sent again. It names one revision, so it is
applied at most once, and when a later send is refused, no earlier one can still be applied. An owner's checkpoint
changes meta together with its head, under the same comparison (`produce.head_txn`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from kafscale.log.heads import Meta, encode_meta
from kafscale.storage.etcd.client import Compare, EtcdClient, EtcdUnknown, Op, Put, Txn, TxnResult
from kafscale.storage.etcd.swap import TRIES_MAX
from kafscale.storage.keys import Keyspace, TopicId

SENDS_MAX: Final = 5
"""Sends of one transaction while its outcome is unknown."""
SEND_AGAIN_S: Final = 0.5

T = TypeVar("T")


class Overtaken(Exception):
    """Others changed the log under each try to change it, or deleted it. The next run starts from what it is then.

    `in_doubt`: one of the tries may have been applied, and then replaced by others. Otherwise none ever was.
    """

    def __init__(self, log: str, why: str = "", *, in_doubt: bool = False) -> None:
        super().__init__(f"{log}: {why or f'it changed under each of {TRIES_MAX} tries'}")
        self.in_doubt = in_doubt


class Seen(Protocol):
    """Head and meta of a partition at one revision. Revision 0: the key is absent."""

    @property
    def head_created(self) -> int: ...
    @property
    def meta_revision(self) -> int: ...


def build_swap(
    keyspace: Keyspace, topic_id: TopicId, partition: int, seen: Seen, meta: Meta, *reads: Op
) -> Txn:
    """Puts `meta` if the meta that was seen is still there, and the head has not been deleted since; then `reads`."""
    meta_key = keyspace.meta(topic_id, partition)
    return Txn(
        compare=(
            Compare(keyspace.head(topic_id, partition), "create", "=", seen.head_created),
            Compare(meta_key, "mod", "=", seen.meta_revision),
        ),
        success=(Put(meta_key, encode_meta(meta)), *reads),
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """The answer to the last send. `in_doubt`: the outcome of an earlier send is unknown."""

    answer: TxnResult
    in_doubt: bool


async def send(etcd: EtcdClient, txn: Txn) -> Sent:
    """Sends until the outcome is known. If it is refused, none of the sends can be applied later.

    Raises EtcdError; EtcdUnknown after SENDS_MAX sends: the transaction may be applied, also later.
    """
    for left in reversed(range(SENDS_MAX)):
        try:
            return Sent(await etcd.txn(txn), in_doubt=left < SENDS_MAX - 1)
        except EtcdUnknown:
            if not left:
                raise
        await asyncio.sleep(SEND_AGAIN_S)
    raise AssertionError("the last send returns or raises")


@dataclass(frozen=True, slots=True)
class Draft(Generic[T]):
    """One try: the transaction to send, and the result of the swap once it is applied.

    `txn` None: nothing is to change. A subclass says how its try is settled and cleaned up, if it has to be.
    """

    txn: Txn | None
    result: T

    def applied(self, _answer: TxnResult) -> T:
        """The swap's result, given etcd's answer to the transaction that was applied."""
        return self.result

    async def was_applied(self) -> bool:
        """After a refusal in doubt: whether an earlier send was applied. False is safe if a repeated try is."""
        return False

    async def discard(self) -> None:
        """Removes what was prepared for a transaction that was refused."""


async def swap(etcd: EtcdClient, log: str, prepare: Callable[[], Awaitable[Draft[T] | None]]) -> T:
    """Calls `prepare`, which reads the log `log` and drafts its change, and sends it, until a try is applied.

    `prepare` returns None if what it read was replaced under the read: that counts as a try. Raises Overtaken after
    TRIES_MAX tries or if `prepare` does, and the EtcdError of `send` with the outcome open.
    """
    in_doubt = False
    try:
        for _ in range(TRIES_MAX):
            draft = await prepare()
            if draft is None:
                continue
            if draft.txn is None:
                return draft.result
            sent = await send(etcd, draft.txn)
            if sent.answer.succeeded:
                return draft.applied(sent.answer)
            in_doubt = in_doubt or sent.in_doubt
            if sent.in_doubt and await draft.was_applied():
                return draft.result
            await draft.discard()
        raise Overtaken(log)
    except Overtaken as overtaken:
        overtaken.in_doubt = overtaken.in_doubt or in_doubt
        raise
