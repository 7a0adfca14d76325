"""The ends of decided transactions on their way: sends what the closer says, and passes on who has confirmed.

The laws (those of `closer`, and):

- An end for a group whose slot is ours takes the same path, without the network.
- A participant is dropped without a confirmation only if its topic is not active by a read of the topics that began
  after its owner had answered without confirming. The watched copy may be old: by it alone, records of a topic that
  lives could stay open for ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Final, Protocol

import structlog
from kafscale.coordinator.slots import Held, SlotSeen
from kafscale.coordinator.transactions.closer import FIRST_PAUSE_MS, Closer, End, Send
from kafscale.coordinator.transactions.model import Ended
from kafscale.rpc.v1.transactions_pb2 import EndReply, EndRequest, TransactionEnd
from kafscale.runtime.clock import Clock
from kafscale.runtime.transactions.calling import CallFailed
from kafscale.runtime.transactions.participants import participants_from_pb, participants_to_pb
from kafscale.runtime.transactions.serving import ServesEnds
from kafscale.storage.coordination import holder_of, rendezvous
from kafscale.storage.keys import Keyspace, PartitionKey, SlotId
from kafscale.storage.membership.members import LiveView
from kafscale.storage.owner_views import OwnersView
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import TopicState, TopicsView
from kafscale.storage.transactions import ClosingTransaction, Participant, Participants
from kafscale.storage.views import PrefixView

log = structlog.get_logger(__name__)

END_TIMEOUT_S: Final = 4.0
"""A participant answers after two seconds at the latest."""
SENDS_AT_ONCE_MAX: Final = 32
"""Messages to one instance. It serves END.at_once_max of all coordinators."""


class SendsEnds(Protocol):
    """The calls to other instances: ParticipantCalls."""

    async def end(self, instance: str, request: EndRequest, *, timeout_s: float) -> EndReply: ...


class Targets:
    """Which instance gets the end of a participant, by the watched views. A view that is out of date costs a repeat."""

    def __init__(
        self,
        *,
        me: str,
        keyspace: Keyspace,
        owners: OwnersView,
        producers: LiveView,
        table: PrefixView[SlotSeen],
        coordinators: LiveView,
        held: Callable[[SlotId], Held | None],
    ) -> None:
        self.me = me
        self._keyspace = keyspace
        self._owners = owners
        self._producers = producers
        self._table = table
        self._coordinators = coordinators
        self._held = held

    def of(self, participant: Participant) -> str | None:
        if isinstance(participant, str):
            return self._of_group(participant)
        return self._of_partition(participant)

    def follow(self, changed: Callable[[], None]) -> None:
        """Calls `changed` after each change of the views."""
        self._owners.subscribe(lambda _key, _record: changed())
        self._table.subscribe(lambda _key, _seen: changed())
        self._producers.subscribe(changed)
        self._coordinators.subscribe(changed)

    def _of_group(self, group: str) -> str | None:
        slot_id = slot_of(group)
        held = self._held(slot_id)
        if held is not None:
            return self.me if held.loaded else None
        seen = self._table.items.get(self._keyspace.slot_claim(slot_id))
        holder = None if seen is None else holder_of(seen.slot, self._coordinators)
        return None if holder is None or holder.id == self.me else holder.id

    def _of_partition(self, partition: PartitionKey) -> str | None:
        """An unowned partition: the instance that hashing prefers. It claims the partition when the end comes."""
        record = self._owners.of(partition)
        holder = None if record is None else holder_of(record, self._producers)
        if holder is not None:
            return holder.id
        node_id = rendezvous(*partition, (each.node_id for each in self._producers.ready()))
        found = self._producers.by_node(node_id)
        return None if found is None else found.id


class Closing:
    """See the module's laws. `run` it in a task. `put` is called for each id after each of its steps and loads."""

    def __init__(
        self,
        *,
        targets: Targets,
        calls: SendsEnds,
        local: ServesEnds,
        topics: TopicsView,
        clock: Clock,
        ended: Callable[[str, Ended], None],
        begin: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`local`: the groups of this instance. `ended` hears what was confirmed. `begin` owns the tasks."""
        self._targets = targets
        self._calls = calls
        self._local = local
        self._topics = topics
        self._clock = clock
        self._ended = ended
        self._begin = begin
        self._closer = Closer()
        self._since: dict[str, tuple[int, int]] = {}  # id: number, and when this process first knew it
        self._under_way: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._moved = False
        self.answers: Counter[str] = Counter()
        """Ends that were sent, by what came of it (ANSWERS)."""
        targets.follow(self._views_changed)

    def put(self, name: str, closing: ClosingTransaction | None) -> None:
        """What the id awaits now, as it is written."""
        if closing is None and name not in self._since:
            return
        now_ms = self._clock.now_ms()
        self._closer.put(name, closing, now_ms)
        if closing is None:
            del self._since[name]
        elif name not in self._since or self._since[name][0] != closing.number:
            self._since[name] = closing.number, now_ms
        self._changed.set()

    @property
    def count(self) -> int:
        """Transactions that are decided and not ended everywhere."""
        return len(self._since)

    def oldest_s(self) -> float:
        """For how long this process has known the oldest of them."""
        oldest_ms = min((since_ms for _, since_ms in self._since.values()), default=None)
        return 0.0 if oldest_ms is None else (self._clock.now_ms() - oldest_ms) / 1000

    def _views_changed(self) -> None:
        self._moved = True
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._changed.clear()
            now_ms = self._clock.now_ms()
            if self._moved:
                self._moved = False
                self._closer.views_changed(now_ms)
            busy = {target for target, count in self._under_way.items() if count >= SENDS_AT_ONCE_MAX}
            for send in self._closer.sends(now_ms, self._targets.of, busy):
                self._under_way[send.to] += 1
                self._begin(self._carry(send))
            await self._until_due(now_ms)

    async def _until_due(self, now_ms: int) -> None:
        """What is due already is for a busy instance."""
        due_ms = self._closer.next_deadline
        wait_ms = None if due_ms is None else due_ms - now_ms if due_ms > now_ms else FIRST_PAUSE_MS
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _carry(self, send: Send) -> None:
        confirmed: set[End] = set()
        was_answered = False
        try:
            confirmed = _confirmed(send, await self._ask(send))
            was_answered = True
        except CallFailed as failed:
            log.info("ends not answered", to=send.to, why=str(failed))
        finally:
            self._under_way[send.to] -= 1
            self._pass_on(send, confirmed)
        self.answers["done"] += len(confirmed)
        rest = [end for end in send.ends if end not in confirmed]
        self.answers["later" if was_answered else "failed"] += len(rest)
        if was_answered and rest:
            await self._drop_gone(send, rest)

    async def _ask(self, send: Send) -> EndReply:
        """Raises CallFailed."""
        request = EndRequest(ends=[end_to_pb(closing) for _, closing in send.transactions])
        if send.to != self._targets.me:
            return await self._calls.end(send.to, request, timeout_s=END_TIMEOUT_S)
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                return await self._local.end(request)
        except TimeoutError:
            raise CallFailed("End", send.to, f"not answered within {END_TIMEOUT_S:.0f} s") from None

    def _pass_on(self, send: Send, confirmed: Iterable[End]) -> None:
        for name, event in self._closer.answered(send, confirmed, self._clock.now_ms()):
            self._ended(name, event)
        self._changed.set()

    async def _drop_gone(self, send: Send, rest: list[End]) -> None:
        """Ends for partitions of topics that are deleted."""
        if not any(self._is_gone(end.participant) for end in rest) or not await self._topics.confirmed():
            return
        gone = {end for end in rest if self._is_gone(end.participant)}
        log.info("ends dropped with their topics", ends=len(gone))
        self.answers["dropped"] += len(gone)
        self._pass_on(_of(send, gone), gone)

    def _is_gone(self, participant: Participant) -> bool:
        """While some record of a topic cannot be read, no topic counts as gone: it may be that one."""
        if isinstance(participant, str) or self._topics.view.unreadable:
            return False
        topic = self._topics.by_id(participant[0])
        return topic is None or topic.state is not TopicState.ACTIVE


ANSWERS: Final = ("done", "later", "failed", "dropped")
"""Of `Closing.answers`. `later`: answered and not confirmed. `failed`: not answered. `dropped`: the topic is gone."""


def end_to_pb(closing: ClosingTransaction) -> TransactionEnd:
    """For those who are awaited."""
    return TransactionEnd(
        producer_id=closing.producer_id,
        number=closing.number,
        commit=closing.commit,
        marker_epoch=closing.marker_epoch,
        coordinator_epoch=closing.coordinator_epoch,
        participants=participants_to_pb(closing.awaited),
    )


def _of(send: Send, ends: Collection[End]) -> Send:
    """The part of the message with these ends. The others may be under way again, and are not touched."""
    parts = [
        (
            name,
            replace(closing, awaited=Participants.of(*(end.participant for end in ends if end.name == name))),
        )
        for name, closing in send.transactions
    ]
    return Send(send.to, tuple((name, closing) for name, closing in parts if closing.awaited))


def _confirmed(send: Send, reply: EndReply) -> set[End]:
    """No two ids have the same producer id, so it names a transaction together with the number."""
    done = {
        (each.producer_id, each.number, participant)
        for each in reply.done
        for participant in participants_from_pb(each.participants)
    }
    return {end for end in send.ends if (end.producer_id, end.number, end.participant) in done}
