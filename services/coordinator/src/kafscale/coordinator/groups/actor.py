"""One live group: feeds its machine, has written what must survive, and only then lets replies go.

The laws. A reply leaves after the write of the hard state of its step (persist, then reply). While a
write is under way events wait in a bounded inbox and are then stepped together, so that a storm of
requests costs few writes. Members whose heartbeats wait behind a write are not silent: a write that takes
long is time that the group has not lived through, as a pause of the process is (`running_clock`). A write
that another claim has fenced ends the actor: everyone who waits hears it, and nothing the actor held is
true any more. One that etcd refused (a record too large) was certainly not made: everyone who waits is told
to try again, and the group is what was written last. A change that takes several transactions (`writes`) is
made when the last of them is; when etcd refuses one in between, the slot is read again.
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
from kafscale.storage.claims import range_at
from kafscale.storage.etcd.client import Compare, Range, Txn, TxnResult
from kafscale.storage.groups import NOT_EMPTY
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_fence
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

INBOX_MAX = 10_000
PARTS_TOGETHER_MAX = 90
"""Keys of members that one write changes, unless a single event changes more."""

G = TypeVar("G")
E = TypeVar("E")
D = TypeVar("D")


class GroupFailed(Exception):
    """The group cannot answer; `error` is what the client is told."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class Reply(Protocol):
    @property
    def token(self) -> int: ...


class GroupType(Protocol[G, E, D]):
    """A group machine as the actor drives it."""

    def step(self, group: G, event: E, now_ms: int) -> tuple[G, Sequence[Reply]]: ...

    def next_deadline(self, group: G) -> int | None: ...

    def must_save(self, before: G, after: G) -> bool:
        """Whether what must survive differs. Asked after every heartbeat, so it has to be cheap."""

    def durable(self, group: G) -> D:
        """What must survive."""

    def parts_changed(self, stored: D | None, group: G) -> int:
        """How many keys beneath the group's a write would change, of a group that etcd has as `stored`."""

    def change(self, name: str, stored: D | None, group: G, empty_since_ms: int) -> GroupChange:
        """What that write is."""

    def restored(self, stored: D, now_ms: int) -> G:
        """The group as etcd has it, with full sessions, and with the topics of now."""

    def reborn(self, name: str, group: G, now_ms: int) -> G:
        """The group as the next coordinator would have it: nobody waits, sessions are full."""

    def tick(self) -> E: ...

    def abandon(self, token: int) -> E | None:
        """The event that nobody waits for `token` any more, if this machine parks requests."""

    def exists(self, group: G) -> bool: ...

    def generation(self, group: G) -> int:
        """A new number for each rebalance."""

    def is_empty(self, group: G) -> bool:
        """Without members; only its offsets are left of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all actors share. `fenced`, `rebalanced` and `forget` are the host's."""

    committer: Committer
    keyspace: Keyspace
    clock: RunningClock
    fenced: Callable[[Held], None]
    rebalanced: Callable[[], None]
    forget: Callable[[Actor[Any, Any, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdState:
    """What etcd has of a group. `revision` is its key's mod_revision, 0 while there is none."""

    revision: int = 0
    stored: Any = None  # None: nothing of this type, or all of it in a record of old
    needs_write: bool = False  # the group differs from what is stored
    has_leftovers: bool = False  # there are keys below the group's key that no group of this type wrote
    empty_since_ms: int = NOT_EMPTY  # wall time


class Actor(Generic[G, E, D]):
    """See the module's law. `before` is the empty group of the other type that this one takes the place of; it
    stands until this one is written."""

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
        """The reply to the event, or `GroupFailed`. To cancel the future is to abandon the request."""
        if self._ended:
            raise GroupFailed(ErrorCode.NOT_COORDINATOR)
        if len(self._inbox) >= INBOX_MAX:
            raise GroupFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._token = token = self._token + 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        answer.add_done_callback(lambda done: self._abandoned(token) if done.cancelled() else None)
        self.tell(event_of(token))
        return answer

    def tell(self, event: E) -> None:
        """An event that nobody waits for."""
        self._inbox.append(event)
        if not self._writing:
            self._step_inbox()

    def end(self, error: ErrorCode) -> None:
        """The group is not coordinated here any more."""
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

    # -- turns ----------------------------------------------------------------------------------

    def _step_inbox(self) -> None:
        """Step what has come, as far as it fits into one write."""
        replies: list[Reply] = []
        group = self.group
        now_ms = self._now_ms()
        while self._inbox:
            stepped, answered = self.type.step(group, self._inbox[0], now_ms)
            if (
                self._must_save(group)
                and self.type.parts_changed(self.in_etcd.stored, stepped) > PARTS_TOGETHER_MAX
            ):
                break  # it is stepped again, after what came before it is written
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
            log.error("a group is too large to be written", group=self.name, bytes=largest)
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
        """One after another. `made` is told the revision of the group's key after the last."""
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
        """The revision of the group's key, or None: nothing came of it. `begun`: steps before this one were made."""
        if not isinstance(answer, Settled):
            log.error("etcd refused a group's record", group=self.name, why=answer.reason)
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
            log.error("a group's record changed under its coordinator", group=self.name)
        self._shared.fenced(self.held)
        return None

    def _undo(self) -> None:
        """Nothing of the last turn happened, nor of what waited behind it; who was parked asks again."""
        self.group = self.type.reborn(self.name, self.group, self._now_ms())
        self._inbox.clear()
        self._fail_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._arm()
        if not self.type.exists(self.group):
            self._shared.forget(self)

    # -- time -----------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        """Monotonic, in the group's own time."""
        return self._shared.clock.now_ms() - self._missed_ms

    def _arm(self) -> None:
        due_ms = self.type.next_deadline(self.group)
        if due_ms is None:
            self._disarm()
            return
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return  # it fires early, looks again, and is armed for the right time
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(0, due_ms - self._now_ms()) / 1000
        # In no request's context: whoever armed it is not who the group then works for.
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fired, context=Context())

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        if self._ended or self._writing:
            return  # after the write it is armed again
        due_ms = self.type.next_deadline(self.group)
        if due_ms is not None and due_ms <= self._now_ms():
            self.tell(self.type.tick())
        else:
            self._arm()


def _seen(result: TxnResult) -> tuple[int, bytes | None, int]:
    """What a refused write found: the slot's revision, the record and its revision."""
    slots, records = range_at(result, 0).kvs, range_at(result, 1).kvs
    slot_revision = slots[0].mod_revision if slots else 0
    return (slot_revision, records[0].value, records[0].mod_revision) if records else (slot_revision, None, 0)
