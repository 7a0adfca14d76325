"""A coordinator of transactional ids that a test plays, and what it sends to instances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from kafscale.rpc.v1.transactions_pb2 import EndReply, EndRequest, JoinReply, JoinRequest, TransactionEnd
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.runtime.transactions.participants import participants_from_pb, participants_to_pb
from kafscale.storage.keys import PartitionKey
from kafscale.storage.topics import Topic
from kafscale.storage.transactions import Participants
from produce_harness import Cluster, Node, batch

ID = "payments"
PID = 7
NUMBER = 4


@dataclass
class Coordinator:
    """Answers each question by `reply`; while `held` is set, after it."""

    reply: Callable[[JoinRequest], JoinReply] = lambda request: JoinReply(number=NUMBER)
    held: asyncio.Event | None = None
    asked: list[JoinRequest] = field(default_factory=list)

    async def join(self, request: JoinRequest, *, timeout_s: float) -> JoinReply:
        self.asked.append(request)
        reply = self.reply(request)
        if self.held is not None:
            await self.held.wait()
        return reply

    def refuses(self) -> None:
        def reply(request: JoinRequest) -> JoinReply:
            raise CallFailed("Join", "1/boot", "it is a test")

        self.reply = reply


async def transactional_node(cluster: Cluster, coordinator: Coordinator, **settings: object) -> Node:
    node = await cluster.node(**settings)
    node.service.ownership.tools.joins._calls = coordinator
    return node


def of_transaction(value: bytes, seq: int = 0, *, pid: int = PID, epoch: int = 0) -> bytes:
    return batch(value, pid=pid, epoch=epoch, seq=seq, transactional=True)


def end_message(
    *keys: PartitionKey, number: int = NUMBER, commit: bool = True, epoch: int = 0, pid: int = PID
) -> TransactionEnd:
    return TransactionEnd(
        producer_id=pid,
        number=number,
        commit=commit,
        marker_epoch=epoch,
        coordinator_epoch=2,
        participants=participants_to_pb(Participants(frozenset(keys))),
    )


async def send_ends(node: Node, *ends: TransactionEnd) -> set[tuple[int, int, PartitionKey]]:
    """What is done: producer id, number, partition."""
    reply: EndReply = await node.service.ends.end(EndRequest(ends=ends))
    return {
        (done.producer_id, done.number, key)
        for done in reply.done
        for key in participants_from_pb(done.participants).partitions
    }


async def send_end(node: Node, topic: Topic, partition: int = 0, **fields: object) -> bool:
    """Whether it is done."""
    end = end_message((topic.topic_id, partition), **fields)  # type: ignore[arg-type]
    return bool(await send_ends(node, end))
