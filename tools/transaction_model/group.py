"""The offsets of one group as a model: a transaction's puts, plain commits at the same time, and the move (T9).

T9: pending offsets reach the group exactly if their transaction was committed, and never over a newer commit. A fetch
    that requires stable offsets returns none from before an offset that was pending when it began.

A put travels as long as it likes, and so does the end, any number of times. The group has one line: one transaction of
etcd at a time, each fenced by the slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from tools.transaction_model.mutations import Mutation
from tools.transaction_model.search import Step
from tools.transaction_model.state import ABORT, COMMIT, PARTITIONS, Outcome, replaced


class Offset(NamedTuple):
    partition: int
    value: int


TRANSACTION_PUTS = (Offset(0, 1), Offset(1, 2), Offset(0, 3))
PLAIN_PUTS = (Offset(0, 10), Offset(1, 11))


class Committed(NamedTuple):
    """`c/…`, the offset of a partition."""

    value: int = 0
    revision: int = 0


class PendingOffset(NamedTuple):
    partition: int
    value: int
    since: int
    """The revision that it was put with; 0: that of the key."""


class Pending(NamedTuple):
    """`cp/…`, the offsets of a transaction under way."""

    revision: int
    offsets: tuple[PendingOffset, ...]


class Written(NamedTuple):
    """What was written so far, in the order of etcd."""

    offset: Offset
    by: Literal["transaction", "plain"]


class Fetch(NamedTuple):
    """An OffsetFetch that requires stable offsets, between its two reads."""

    pending: tuple[int, ...]
    """Of each partition: the value that was pending when it began; 0: none."""
    committed: tuple[int, ...]
    """What it began with. Only PENDING_READ_LAST uses it."""


class Group(NamedTuple):
    revision: int = 1
    """The newest of etcd."""
    committed: tuple[Committed, ...] = (Committed(), Committed())
    pending: Pending | None = None
    joined: frozenset[Offset] = frozenset()
    """Puts that the coordinator of the transaction has vouched for, on their way."""
    outcome: Outcome | None = None
    heard: bool = False
    """The line knows that the transaction ended."""
    done: bool = False
    """The end was acknowledged."""
    history: tuple[Written, ...] = ()
    puts: int = 0
    """Of the transaction, that were joined."""
    fetch: Fetch | None = None
    fetched: bool = False

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(each.value for each in self.committed)

    @property
    def pending_values(self) -> tuple[int, ...]:
        offsets = self.pending.offsets if self.pending else ()
        values = {each.partition: each.value for each in offsets}
        return tuple(values.get(partition, 0) for partition in PARTITIONS)


Moves = Iterator[tuple[Step, Group]]


class Offsets(NamedTuple):
    mutation: Mutation | None = None
    fetches: bool = False

    def initial(self) -> Group:
        return Group()

    def moves(self, group: Group) -> Moves:
        if group.puts < len(TRANSACTION_PUTS) and group.outcome is None:
            joined = group.joined | {TRANSACTION_PUTS[group.puts]}
            yield ("a join",), group._replace(puts=group.puts + 1, joined=joined)
        for offset in group.joined:
            if group.heard and self.mutation is not Mutation.PUT_AFTER_END:
                yield ("refused:", offset), group._replace(joined=group.joined - {offset})
            else:
                yield ("pending:", offset), self._put(group, offset)
        for offset in PLAIN_PUTS:
            written = Written(offset, "plain")
            if written not in group.history:
                yield ("a plain commit:", offset), with_committed(group, offset, written)
        if group.outcome is None:
            for outcome in (COMMIT, ABORT):
                yield ("decided:", outcome), group._replace(outcome=outcome)
        elif not group.done:
            yield self._ends(group)
        if self.fetches:
            yield from self._fetches(group)

    def _put(self, group: Group, offset: Offset) -> Group:
        """The other pending offsets keep the revision that they were put with: this write makes the key newer."""
        kept: list[PendingOffset] = []
        if group.pending is not None:
            others = [each for each in group.pending.offsets if each.partition != offset.partition]
            kept = [self._kept(each, group.pending.revision) for each in others]
        revision = group.revision + 1
        offsets = tuple(sorted([*kept, PendingOffset(*offset, since=0)]))
        history = (*group.history, Written(offset, "transaction"))
        return group._replace(
            revision=revision,
            pending=Pending(revision, offsets),
            joined=group.joined - {offset},
            history=history,
        )

    def _kept(self, each: PendingOffset, revision: int) -> PendingOffset:
        if self.mutation is Mutation.WHOLE_REVISION:
            return each._replace(since=0)
        return each._replace(since=each.since or revision)

    def _ends(self, group: Group) -> tuple[Step, Group]:
        """One transaction of the move: one offset, and the key with the last. The end comes again after a crash."""
        group = group._replace(heard=True)
        if group.pending is None:
            return ("nothing is pending",), group._replace(done=True)
        revision = group.revision + 1
        dropped_first = self.mutation is Mutation.PENDING_DROPPED_FIRST and group.outcome == COMMIT
        if group.outcome == ABORT or dropped_first:
            return ("dropped",), group._replace(revision=revision, pending=None, done=not dropped_first)
        first, *rest = group.pending.offsets
        is_newer = group.committed[first.partition].revision > (first.since or group.pending.revision)
        committed = group.committed
        if not is_newer or self.mutation is Mutation.OVERWRITES:
            committed = replaced(committed, first.partition, Committed(first.value, revision))
        since = group.pending.revision
        left = tuple(each._replace(since=each.since or since) for each in rest)
        pending = Pending(revision, left) if left else None
        moved = group._replace(revision=revision, committed=committed, pending=pending, done=pending is None)
        return ("moved:", first), moved

    def _fetches(self, group: Group) -> Moves:
        if group.fetch is not None:
            yield ("the fetch answers", self._stable(group)), group._replace(fetch=None, fetched=True)
        elif not group.fetched:
            yield ("a fetch begins",), group._replace(fetch=Fetch(group.pending_values, group.values))

    def _stable(self, group: Group) -> tuple[int | None, ...]:
        """What the fetch answers with its second read; None: unstable. It reads what is pending first."""
        fetch = group.fetch
        assert fetch is not None
        pending, values = fetch.pending, group.values
        if self.mutation is Mutation.PENDING_READ_LAST:
            pending, values = group.pending_values, fetch.committed
        return tuple(None if pending[partition] else values[partition] for partition in PARTITIONS)

    def broken_step(self, before: Group, after: Group) -> str | None:
        if before.fetch is None or after.fetch is not None or before.outcome == ABORT:
            return None
        order = [0, *(offset.value for offset, _ in before.history)]
        for pending, stable in zip(before.fetch.pending, self._stable(before), strict=True):
            if pending and stable is not None and order.index(stable) < order.index(pending):
                return f"T9: a fetch gets {stable} as stable, from before {pending}, which was pending"
        return None

    def broken_state(self, group: Group) -> str | None:
        if not group.done:
            return None
        if group.pending is not None:
            return "T9: offsets stay pending after the end"
        right = [0, 0]
        for (partition, value), by in group.history:
            if by == "plain" or group.outcome == COMMIT:
                right[partition] = value
        found = list(group.values)
        return None if found == right else f"T9: the group has {found}, not {right}, after {group.outcome}"


def with_committed(group: Group, offset: Offset, written: Written) -> Group:
    revision = group.revision + 1
    committed = replaced(group.committed, offset.partition, Committed(offset.value, revision))
    return group._replace(revision=revision, committed=committed, history=(*group.history, written))
