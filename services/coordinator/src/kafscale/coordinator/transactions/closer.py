"""Which ends are sent where, and when again: for all transactional ids of an instance. Pure.

The laws:

- Only what is written is sent: the shell passes `closing` after the write of the decision, and after a load. An end is
  a fact then, so it may be repeated, arrive late, and be sent by a coordinator that has lost the slot.
- Level, and no edge: whatever is in `closing` is sent until its participant confirms it. A message that is lost, or an
  owner that moves, costs a repeat and never a transaction.
- A participant is under way to one instance at a time. If it did not confirm, it waits from FIRST_PAUSE_MS to
  LAST_PAUSE_MS, or until the views show a change (an owner has moved). Who has no instance now waits in the same way.
- One message to an instance has the ends of all ids, up to ENDS_TOGETHER. Ends for a busy instance stay due, and share
  the next message to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kafscale.coordinator.transactions.model import Ended
from kafscale.storage.transactions import ClosingTransaction, Participant, Participants

FIRST_PAUSE_MS: Final = 20
LAST_PAUSE_MS: Final = 1_000
ENDS_TOGETHER: Final = 1_000
"""Participants in one message."""


class End(NamedTuple):
    """The end of one transaction for one participant."""

    name: str  # the transactional id
    producer_id: int
    number: int
    participant: Participant


@dataclass(frozen=True, slots=True)
class Send:
    """One message. `transactions`: with those participants as `awaited` that it is for, by transactional id."""

    to: str
    transactions: tuple[tuple[str, ClosingTransaction], ...]

    @property
    def ends(self) -> list[End]:
        return [each for name, closing in self.transactions for each in _ends(name, closing)]


@dataclass(slots=True)
class _State:
    """`due_ms` None: under way."""

    due_ms: int | None
    pause_ms: int = FIRST_PAUSE_MS


class Closer:
    """See the module's laws."""

    def __init__(self) -> None:
        self._closing: dict[str, ClosingTransaction] = {}
        self._ends: dict[End, _State] = {}

    def put(self, name: str, closing: ClosingTransaction | None, now_ms: int) -> None:
        """What the id awaits now. New ends are due at once; those that are known keep their time."""
        before = self._closing.pop(name, None)
        old = set() if before is None else set(_ends(name, before))
        new = set() if closing is None else set(_ends(name, closing))
        if closing is not None:
            self._closing[name] = closing
        for end in old - new:
            self._ends.pop(end, None)
        for end in new - old:
            self._ends[end] = _State(now_ms)

    def views_changed(self, now_ms: int) -> None:
        """Owners have moved, or instances came: what waits is tried at once."""
        for state in self._ends.values():
            if state.due_ms is not None:
                state.due_ms, state.pause_ms = now_ms, FIRST_PAUSE_MS

    def sends(
        self,
        now_ms: int,
        target_of: Callable[[Participant], str | None],
        busy: Collection[str] = (),
    ) -> list[Send]:
        """The messages that are due, except to `busy` instances. Their ends are under way until `answered` or
        `unanswered`."""
        by_target: dict[str, list[End]] = defaultdict(list)
        for end, state in self._ends.items():
            if state.due_ms is None or state.due_ms > now_ms:
                continue
            target = target_of(end.participant)
            if target is None:
                _pause(state, now_ms)
            elif target not in busy:
                state.due_ms = None
                by_target[target].append(end)
        return [
            self._send(target, ends[at : at + ENDS_TOGETHER])
            for target, ends in by_target.items()
            for at in range(0, len(ends), ENDS_TOGETHER)
        ]

    def answered(self, send: Send, confirmed: Iterable[End], now_ms: int) -> list[tuple[str, Ended]]:
        """What the machines of the ids hear. The ends that are not confirmed are sent again."""
        done = set(confirmed)
        heard: dict[tuple[str, int, int], list[Participant]] = defaultdict(list)
        for end in send.ends:
            state = self._ends.get(end)
            if end in done:
                heard[end[:3]].append(end.participant)
                self._ends.pop(end, None)
            elif state is not None and state.due_ms is None:
                _pause(state, now_ms)
        return [
            (name, Ended(producer_id=producer_id, number=number, participants=Participants.of(*some)))
            for (name, producer_id, number), some in heard.items()
        ]

    def unanswered(self, send: Send, now_ms: int) -> None:
        self.answered(send, (), now_ms)

    @property
    def next_deadline(self) -> int | None:
        return min((each.due_ms for each in self._ends.values() if each.due_ms is not None), default=None)

    @property
    def awaited_count(self) -> int:
        return len(self._ends)

    def _send(self, target: str, ends: list[End]) -> Send:
        by_name: dict[str, list[Participant]] = defaultdict(list)
        for end in ends:
            by_name[end.name].append(end.participant)
        transactions = [
            (name, replace(self._closing[name], awaited=Participants.of(*some)))
            for name, some in by_name.items()
        ]
        return Send(target, tuple(transactions))


def _ends(name: str, closing: ClosingTransaction) -> Iterable[End]:
    return (End(name, closing.producer_id, closing.number, each) for each in closing.awaited)


def _pause(state: _State, now_ms: int) -> None:
    state.due_ms = now_ms + state.pause_ms
    state.pause_ms = min(2 * state.pause_ms, LAST_PAUSE_MS)
