"""The line of a group: all changes of its offsets, made in order of arrival.

The laws:

- Changes of the same keys are made one after another, in order of arrival. The changes that wait and concern different
  keys are made together: the plain commits in one transaction (the last offset of each partition wins), and each turn
  (of offsets that a transaction has pending) in a transaction of its own.
- Each change is answered after its last transaction. A change whose client leaves before it is sent is not sent.
- Nothing is written under a lost claim.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kafscale.coordinator.slots import Held
from kafscale.runtime.committer import Answer, Committer, Settled
from kafscale.storage.etcd.client import Delete, Put, Txn
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_fence
from kafscale.wire.errors import ErrorCode

CHANGES_PER_TXN_MAX = 100
CHANGES_BYTES_MAX = 512 << 10
KEYS_WAITING_MAX = 100_000
"""Of one group. More changes are refused until these are made."""
TURNS_TOGETHER_MAX = 100

Write = Put | Delete


class Step(NamedTuple):
    """The next transaction of a turn. `touches`: the keys that it writes, or whose order with it matters."""

    txn: Txn
    touches: frozenset[bytes]


class Turn(Protocol):
    """A change of several transactions, one after another. The line may make changes of other keys between them."""

    @property
    def key(self) -> bytes:
        """Turns of the same key are never made together."""

    @property
    def size(self) -> int:
        """In keys, for the bound of what waits."""

    def step(self) -> Step | ErrorCode:
        """The next transaction, or the answer. Without any effect."""

    def made(self, settled: Settled) -> bool:
        """etcd's answer to the step. False: the claim is lost."""


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """Plain changes, or a turn. With neither it is answered after all that came before it."""

    answer: asyncio.Future[ErrorCode]
    changes: Mapping[bytes, Write] = field(default_factory=dict)
    turn: Turn | None = None

    @property
    def size(self) -> int:
        return len(self.changes) if self.turn is None else self.turn.size

    @property
    def has_range(self) -> bool:
        return any(isinstance(each, Delete) and each.range_end is not None for each in self.changes.values())


@dataclass(slots=True)
class _Wave:
    """Changes that are made together."""

    plain: list[_Entry] = field(default_factory=list)
    changes: dict[bytes, Write] = field(default_factory=dict)
    has_range: bool = False
    turns: list[tuple[_Entry, Turn, Step]] = field(default_factory=list)
    touched: set[bytes] = field(default_factory=set)  # by turns

    def takes(self, entry: _Entry) -> bool:
        """False: the entry concerns a key of the wave, and waits for the next one."""
        if entry.answer.done():
            return True  # its client has left
        if entry.turn is not None:
            return self._takes_turn(entry, entry.turn)
        has_range = entry.has_range
        if (has_range and self.turns) or not self.touched.isdisjoint(entry.changes):
            return False
        self.plain.append(entry)
        self.has_range |= has_range
        for key, change in entry.changes.items():
            self.changes.pop(key, None)  # the last change of a key is written last
            self.changes[key] = change
        return True

    def _takes_turn(self, entry: _Entry, turn: Turn) -> bool:
        if self.has_range or turn.key in self.touched or len(self.turns) >= TURNS_TOGETHER_MAX:
            return False
        step = turn.step()
        if isinstance(step, ErrorCode):
            entry.answer.set_result(step)
            return True
        if not (self.touched.isdisjoint(step.touches) and step.touches.isdisjoint(self.changes)):
            return False
        self.turns.append((entry, turn, step))
        self.touched |= {turn.key, *step.touches}
        return True


@dataclass(slots=True)
class _Queue:
    waiting: deque[_Entry] = field(default_factory=deque)
    size: int = 0  # of those that wait
    running: int = 0  # of the present wave
    unfinished: list[_Entry] = field(default_factory=list)  # turns of it that have more transactions
    barriers: list[_Entry] = field(default_factory=list)  # answered after the wave


class Lines:
    """The lines of all groups; see the module's laws. `fenced` is called with a lost claim."""

    def __init__(self, keyspace: Keyspace, committer: Committer, fenced: Callable[[Held], None]) -> None:
        self._keyspace = keyspace
        self._committer = committer
        self._fenced = fenced
        self._queues: dict[tuple[Held, str], _Queue] = {}

    def is_busy(self, held: Held, group: str) -> bool:
        """Whether a change waits or is being made."""
        return (held, group) in self._queues

    def change(self, held: Held, group: str, changes: Mapping[bytes, Write]) -> asyncio.Future[ErrorCode]:
        """In line when this returns. NONE after the write; NOT_COORDINATOR if another instance has the slot."""
        entry = _Entry(asyncio.get_running_loop().create_future(), changes)
        if changes:
            self._put(held, group, entry)
        else:
            entry.answer.set_result(ErrorCode.NONE)
        return entry.answer

    def take(self, held: Held, group: str, turn: Turn) -> asyncio.Future[ErrorCode]:
        """In line when this returns. The answer is the turn's, or NOT_COORDINATOR."""
        entry = _Entry(asyncio.get_running_loop().create_future(), turn=turn)
        self._put(held, group, entry)
        return entry.answer

    def settled(self, held: Held, group: str) -> asyncio.Future[ErrorCode] | None:
        """Answered after all that is in line now. None: nothing is."""
        queue = self._queues.get((held, group))
        if queue is None:
            return None
        entry = _Entry(asyncio.get_running_loop().create_future())
        queue.waiting.append(entry)
        return entry.answer

    def _put(self, held: Held, group: str, entry: _Entry) -> None:
        queue = self._queues.get((held, group))
        if queue is None:
            queue = self._queues[(held, group)] = _Queue()
        elif queue.size + entry.size > KEYS_WAITING_MAX:
            entry.answer.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        queue.waiting.append(entry)
        queue.size += entry.size
        if not queue.running:
            self._next(held, group)

    def _next(self, held: Held, group: str) -> None:
        queue = self._queues[(held, group)]
        wave = _Wave()
        while queue.waiting and wave.takes(queue.waiting[0]):
            queue.size -= queue.waiting.popleft().size
        written = [each.answer for each in wave.plain if each.changes]
        queue.barriers = [each for each in wave.plain if not each.changes]
        queue.running = bool(written) + len(wave.turns)
        if not queue.running:
            assert not queue.waiting, "nothing is in its way"
            del self._queues[(held, group)]
            _answer([each.answer for each in queue.barriers], ErrorCode.NONE)
            return
        if written:
            self._send_from(held, group, list(wave.changes.values()), written)
        for entry, turn, step in wave.turns:
            self._send_step(held, group, entry, turn, step)

    def _finished(self, held: Held, group: str) -> None:
        """One part of the wave."""
        queue = self._queues[(held, group)]
        queue.running -= 1
        if queue.running:
            return
        _answer([each.answer for each in queue.barriers], ErrorCode.NONE)
        queue.waiting.extendleft(reversed(queue.unfinished))
        queue.size += sum(each.size for each in queue.unfinished)
        queue.unfinished = []
        self._next(held, group)

    def _send_from(
        self, held: Held, group: str, changes: list[Write], waiting: list[asyncio.Future[ErrorCode]]
    ) -> None:
        """The plain changes, in as many transactions as etcd's limits need."""
        size = _txn_size(changes)
        now, rest = changes[:size], changes[size:]

        def done(answer: Answer) -> None:
            error = self._error_of(held, answer)
            if error is ErrorCode.NONE and rest:
                self._send_from(held, group, rest, waiting)
                return
            _answer(waiting, error)
            self._finished(held, group)

        txn = Txn(compare=(slot_fence(self._keyspace, held.slot_id, held.revision),), success=tuple(now))
        self._committer.submit(txn, done, key=self._keyspace.commits_prefix(held.slot_id, group))

    def _error_of(self, held: Held, answer: Answer) -> ErrorCode:
        if not isinstance(answer, Settled):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if answer.result.succeeded:
            return ErrorCode.NONE
        self._fenced(held)
        return ErrorCode.NOT_COORDINATOR

    def _send_step(self, held: Held, group: str, entry: _Entry, turn: Turn, step: Step) -> None:
        def done(answer: Answer) -> None:
            after = self._after_step(held, turn, answer)
            if isinstance(after, ErrorCode):
                _answer([entry.answer], after)
            else:
                self._queues[(held, group)].unfinished.append(entry)
            self._finished(held, group)

        self._committer.submit(step.txn, done, key=turn.key)

    def _after_step(self, held: Held, turn: Turn, answer: Answer) -> Step | ErrorCode:
        if not isinstance(answer, Settled):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if turn.made(answer):
            return turn.step()
        self._fenced(held)
        return ErrorCode.NOT_COORDINATOR


def _answer(waiting: list[asyncio.Future[ErrorCode]], error: ErrorCode) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(error)


def _txn_size(changes: list[Write]) -> int:
    """How many of the first changes may share a transaction. etcd needs the delete of a range to be alone."""
    room = CHANGES_BYTES_MAX
    for number, change in enumerate(changes[:CHANGES_PER_TXN_MAX]):
        if isinstance(change, Delete) and change.range_end is not None:
            return max(number, 1)
        room -= len(change.key) + (len(change.value) if isinstance(change, Put) else 0)
        if room < 0:
            return max(number, 1)
    return min(len(changes), CHANGES_PER_TXN_MAX)
