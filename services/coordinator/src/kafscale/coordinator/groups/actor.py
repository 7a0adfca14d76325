"""One live group: steps its machine, writes the state that must survive, and only then releases the replies.

The laws:

- A reply leaves after the persisted state of its step is written (persist, then reply).
- During a write, events wait in a bounded inbox. They are then stepped together, so many requests cost few writes.
- A heartbeat that waits behind a write does not count as missing: the time of a long write is not part of the group's
  time, like a pause of the process (`running_clock`).
- If a write is fenced by another claim, the actor ends. Every waiting request fails, and the actor's state is invalid.
- If etcd refuses a write (the record is too large), nothing was written. Every waiting request fails with a retriable
  error, and the group returns to its last written state.
- A change of several transactions (`group_txns`) takes effect with the last of them. If etcd refuses an earlier one,
  the slot is read again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog
from kafscale.coordinator.groups import group_txns
from kafscale.coordinator.groups.group_txns import GroupChange, GroupKey, GroupTxn
from kafscale.coordinator.groups.running_clock import GAP_MS, RunningClock
from kafscale.coordinator.slots import Held
from kafscale.runtime.committer import Answer, Committer, Settled
from kafscale.storage.etcd.client import Compare, Range, Txn, TxnResult
from kafscale.storage.etcd.ops import range_at
from kafscale.storage.groups import NOT_EMPTY
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_fence
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

INBOX_MAX = 10_000
PARTS_TOGETHER_MAX = 90
"""Member keys that one write may change, unless a single event changes more."""

G = TypeVar("G")
E = TypeVar("E")
D = TypeVar("D")


class GroupFailed(Exception):
    """The group cannot answer; `error` goes to the client."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class Reply(Protocol):
    @property
    def token(self) -> int: ...


class GroupType(Protocol[G, E, D]):
    """A group type (classic or consumer): its machine as the actor drives it."""

    def step(self, group: G, event: E, now_ms: int) -> tuple[G, Sequence[Reply]]: ...

    def next_deadline(self, group: G) -> int | None: ...

    def must_save(self, before: G, after: G) -> bool:
        """Whether the persisted state differs. Called after every heartbeat, so it must be cheap."""

    def durable(self, group: G) -> D:
        """The state that must survive the process."""

    def parts_changed(self, stored: D | None, group: G) -> int:
        """How many keys below the group's key a write would change, if etcd has the group as `stored`."""

    def change(self, name: str, stored: D | None, group: G, empty_since_ms: int) -> GroupChange:
        """The write from `stored` to the group's persisted state."""

    def restored(self, stored: D, now_ms: int) -> G:
        """The group as etcd has it, with full sessions and the present topics. No request waits."""

    def tick(self) -> E: ...

    def abandon(self, token: int) -> E | None:
        """The event that the client of `token` has left, if this machine parks requests."""

    def exists(self, group: G) -> bool: ...

    def generation(self, group: G) -> int:
        """A new number for each rebalance."""

    def is_empty(self, group: G) -> bool:
        """Whether the group has no members. It may still have offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all actors share. `fenced`, `rebalanced` and `forget` are callbacks of the registry."""

    committer: Committer
    keyspace: Keyspace
    clock: RunningClock
    fenced: Callable[[Held], None]
    rebalanced: Callable[[], None]
    forget: Callable[[Actor[Any, Any, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdState:
    """What etcd has of a group. `revision`: the mod_revision of its key, 0 if there is no key."""

    revision: int = 0
    stored: Any = None  # None: no group of this type, or a record of the old format
    needs_write: bool = False  # the group differs from what is stored
    has_leftovers: bool = False  # there are keys below the group's key that no group of this type wrote
    empty_since_ms: int = NOT_EMPTY  # wall time


class Actor(Generic[G, E, D]):
    """See the module's laws. `before`: the empty group of the other type that this one replaces with its first
    write.
    """

    def __init__(
        self,
        name: str,
        held: Held,
        group_type: GroupType[G, E, D],
        group: G,
        shared: Shared,
        *,
        in_etcd: EtcdState,
        before: Actor[Any, Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.held = held
        self.type = group_type
        self.group = group
        self.in_etcd = in_etcd
        self.before = before
        self._shared = shared
        self._key = shared.keyspace.group(held.slot_id, name)
        self._inbox: deque[E] = deque()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._token = 0
        self._writing = False
        self._missed_ms = 0
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._arm()

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._inbox or self._writing)

    def ask(self, event_of: Callable[[int], E]) -> asyncio.Future[Any]:
        """The reply to the event, or `GroupFailed`. Cancelling the future abandons the request."""
        if self._ended:
            raise GroupFailed(ErrorCode.NOT_COORDINATOR)
        if len(self._inbox) >= INBOX_MAX:
            raise GroupFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._token = token = self._token + 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        self.tell(event_of(token))
        if not answer.done():  # most are: a heartbeat of a stable group is answered at once
            answer.add_done_callback(lambda done: self._abandoned(token) if done.cancelled() else None)
        return answer

    def tell(self, event: E) -> None:
        """Steps an event without a reply."""
        self._inbox.append(event)
        if not self._writing:
            self._step_inbox()

    def end(self, error: ErrorCode) -> None:
        """Ends the actor: this process no longer coordinates the group. Waiting requests fail with `error`."""
        if self._ended:
            return
        self._ended = True
        self._disarm()
        self._inbox.clear()
        self._fail_all(error)

    def _fail_all(self, error: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(GroupFailed(error))

    def _abandoned(self, token: int) -> None:
        if self._waiting.pop(token, None) is not None and not self._ended:
            event = self.type.abandon(token)
            if event is not None:
                self.tell(event)

    # -- steps ----------------------------------------------------------------------------------

    def _step_inbox(self) -> None:
        """Steps the waiting events, as many as fit into one write."""
        replies: list[Reply] = []
        group = self.group
        now_ms = self._now_ms()
        while self._inbox:
            stepped, answered = self.type.step(group, self._inbox[0], now_ms)
            if (
                self._must_save(group)
                and self.type.parts_changed(self.in_etcd.stored, stepped) > PARTS_TOGETHER_MAX
            ):
                break  # it is stepped again, after the earlier events are written
            self._inbox.popleft()
            group = stepped
            replies += answered
        if self._must_save(group):
            self._write(group, replies)
        else:
            self._settle(group, replies)

    def _must_save(self, group: G) -> bool:
        return self.in_etcd.needs_write or (
            group is not self.group and self.type.must_save(self.group, group)
        )

    def _settle(self, group: G, replies: Sequence[Reply]) -> None:
        if self.type.generation(group) != self.type.generation(self.group):
            self._shared.rebalanced()
        self.group = group
        for reply in replies:
            answer = self._waiting.pop(reply.token, None)
            if answer is not None and not answer.done():
                answer.set_result(reply)
        self._arm()
        if not self.type.exists(group) and self.idle:
            self._shared.forget(self)

    def _write(self, group: G, replies: Sequence[Reply]) -> None:
        known = self.in_etcd
        since_ms = self._empty_since_ms(group)
        change = self.type.change(self.name, known.stored, group, since_ms)
        txns = group_txns.txns_of(
            change,
            self._shared.keyspace,
            self._key,
            leftovers=known.has_leftovers,
            ops_max=group_txns.OPS_PER_TXN_MAX,
        )
        largest = max(txn.bytes for txn in txns)
        if largest > group_txns.TXN_BYTES_MAX:
            log.error("group record too large", group=self.name, bytes=largest)
            self._undo()
            return
        self._writing = True
        began_ms = self._shared.clock.now_ms()

        def made(revision: int) -> None:
            took_ms = self._shared.clock.now_ms() - began_ms
            self._missed_ms += took_ms if took_ms > GAP_MS else 0
            self._writing = False
            stored = None if change.record is None else self.type.durable(group)
            self.in_etcd = EtcdState(revision=revision, stored=stored, empty_since_ms=since_ms)
            self.before = None
            self._settle(group, replies)
            if self._inbox and not self._ended:
                self._step_inbox()

        self._send(txns, known.revision, made)

    def _send(self, txns: list[GroupTxn], revision: int, made: Callable[[int], None], at: int = 0) -> None:
        """Sends the transactions one after another. `made` gets the revision of the group's key after the last."""
        part, shared, held = txns[at], self._shared, self.held
        txn = Txn(
            compare=(
                slot_fence(shared.keyspace, held.slot_id, held.revision),
                Compare(self._key, "mod", "=", revision),
            ),
            success=part.ops,
            failure=(Range(shared.keyspace.slot_claim(held.slot_id), keys_only=True), Range(self._key)),
        )

        def done(answer: Answer) -> None:
            if self._ended:
                return
            after = self._written(answer, part, revision, begun=at > 0)
            if after is None:
                return
            if at + 1 < len(txns):
                self._send(txns, after, made, at + 1)
            else:
                made(after)

        shared.committer.submit(txn, done, key=self._key)

    def _empty_since_ms(self, group: G) -> int:
        if not self.type.is_empty(group):
            return NOT_EMPTY
        since_ms = self.in_etcd.empty_since_ms
        return self._shared.clock.wall_ms() if since_ms == NOT_EMPTY else since_ms

    def _written(self, answer: Answer, txn: GroupTxn, revision: int, *, begun: bool) -> int | None:
        """The revision of the group's key, or None if the write failed. `begun`: earlier transactions of the change
        were made.
        """
        if not isinstance(answer, Settled):
            log.error("group record refused by etcd", group=self.name, why=answer.reason)
            if begun:
                self._shared.fenced(self.held)
            else:
                self._writing = False
                self._undo()
            return None
        if answer.result.succeeded:
            if txn.record is GroupKey.UNTOUCHED:
                return revision
            return 0 if txn.record is None else answer.revision
        slot_revision, record, found = _seen(answer.result)
        if slot_revision == self.held.revision and answer.ambiguous and record == txn.record:
            return found  # an earlier try of the same bytes was applied
        if slot_revision == self.held.revision:
            log.error("group record changed by another writer", group=self.name)
        self._shared.fenced(self.held)
        return None

    def _undo(self) -> None:
        """Returns to the last written state. Parked requests and events in the inbox fail with a retriable error."""
        self.group = self.type.restored(self.type.durable(self.group), self._now_ms())
        self._inbox.clear()
        self._fail_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._arm()
        if not self.type.exists(self.group):
            self._shared.forget(self)

    # -- time -----------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        """Monotonic time of the group: without long writes."""
        return self._shared.clock.now_ms() - self._missed_ms

    def _arm(self) -> None:
        due_ms = self.type.next_deadline(self.group)
        if due_ms is None:
            self._disarm()
            return
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return  # it fires early, and is then armed for the right time
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(0, due_ms - self._now_ms()) / 1000
        # With an empty context: the timer does not belong to the request that armed it.
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fired, context=Context())

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        if self._ended or self._writing:
            return  # the timer is armed again after the write
        due_ms = self.type.next_deadline(self.group)
        if due_ms is not None and due_ms <= self._now_ms():
            self.tell(self.type.tick())
        else:
            self._arm()


def _seen(result: TxnResult) -> tuple[int, bytes | None, int]:
    """What the failure branch of a write has read: the slot's revision, the record and its revision."""
    slots, records = range_at(result, 0).kvs, range_at(result, 1).kvs
    slot_revision = slots[0].mod_revision if slots else 0
    return (slot_revision, records[0].value, records[0].mod_revision) if records else (slot_revision, None, 0)
