"""The laws of the protocol, T1 to T7: what must hold in every state, and over every step.

T1: all records of a transaction are under a commit marker if its producer's EndTxn decided commit, and under none
    otherwise. So a reader of committed data sees all of it or nothing once it is decided everywhere.
T2: the head has open what has records without a marker. So these are at or above the last stable offset. It never
    falls.
T3: every open transaction of a log will be ended: it is current, or it is closing and still awaited.
T4: one number is one transaction, and a log has at most one marker of it.
T5: after a takeover was answered, the producer before it decides nothing. Epochs never fall.
T6: an acknowledged record is in the log.
T7: from every state, with the newest coordinator and owners left alone, the closing transaction completes.
"""

from __future__ import annotations

from tools.transaction_model.owner import Owners
from tools.transaction_model.state import (
    COMMIT,
    PARTITIONS,
    Data,
    Head,
    Marker,
    Opened,
    Record,
    State,
    Transaction,
)


def broken_step(before: State, after: State) -> str | None:
    if after.record.epoch < before.record.epoch:
        return "T5: the record's epoch fell"
    if before.taken_over and any(each.by == "A" for each in after.decisions - before.decisions):
        return "T5: the old producer decided after the takeover was answered"
    for partition in PARTITIONS if after.heads is not before.heads else ():
        if after.heads[partition].last_stable < before.heads[partition].last_stable:
            return f"T2: the last stable offset of partition {partition} fell"
    return None


def broken_state(state: State, owners: Owners) -> str | None:
    for partition in PARTITIONS:
        wrong = (
            wrong_markers(state.heads[partition], state.committed)
            or wrong_open(state.heads[partition])
            or hanging(state.heads[partition], partition, state.coordinators[-1].memory)
        )
        if wrong:
            return f"{wrong}, partition {partition}"
    return decided_twice(state) or mixed(state) or lost(state) or never_completes(state, owners)


def wrong_markers(head: Head, committed: frozenset[Transaction]) -> str | None:
    numbers: set[int] = set()
    undecided: list[Data] = []
    for entry in head.log:
        if isinstance(entry, Data):
            undecided.append(entry)
            continue
        if entry.number in numbers:
            return f"T4: two markers of number {entry.number}"
        numbers.add(entry.number)
        for data in undecided:
            if (entry.outcome == COMMIT) != (data.transaction in committed):
                return f"T1: {data} is under the {entry.outcome} marker of number {entry.number}"
        undecided = []
    return None


def wrong_open(head: Head) -> str | None:
    """The head says what is open, and the bytes say the same."""
    markers = [offset for offset, entry in enumerate(head.log) if isinstance(entry, Marker)]
    first = markers[-1] + 1 if markers else 0
    opened = None
    if first < len(head.log):
        data = head.log[first]
        assert isinstance(data, Data)
        opened = Opened(data.epoch, data.number, first)
    return None if head.open == opened else f"T2: the head has {head.open} open, and the bytes {opened}"


def hanging(head: Head, partition: int, record: Record) -> str | None:
    if head.open is None:
        return None
    number = head.open.number
    is_current = record.has_joined(partition) and record.number == number
    is_closing = record.closing is not None and record.closing.end.number == number
    if is_current or (is_closing and record.awaits(partition)):
        return None
    return f"T3: number {number} hangs"


def decided_twice(state: State) -> str | None:
    outcomes = {decision.end for decision in state.decisions}
    numbers = [end.number for end in outcomes]
    return "T1: a number was decided twice, differently" if len(set(numbers)) < len(numbers) else None


def mixed(state: State) -> str | None:
    transaction_of: dict[int, Transaction] = {}
    for head in state.heads:
        for entry in head.log:
            if not isinstance(entry, Data):
                continue
            if transaction_of.setdefault(entry.number, entry.transaction) != entry.transaction:
                return f"T4: number {entry.number} holds records of two transactions"
    return None


def lost(state: State) -> str | None:
    for transaction, partition in state.acked:
        stored = {entry.transaction for entry in state.heads[partition].log if isinstance(entry, Data)}
        if transaction not in stored:
            return f"T6: {transaction} was acknowledged and is not in partition {partition}"
    return None


def never_completes(state: State, owners: Owners) -> str | None:
    """Ends the closing transaction with the code of the steps themselves."""
    closing = state.coordinators[-1].memory.closing
    if closing is None:
        return None
    for partition in PARTITIONS:
        if not closing.awaited >> partition & 1:
            continue
        mine, head = state.owners[partition], state.heads[partition]
        if not mine or mine[-1].leader_epoch != head.leader_epoch:
            state = owners.claimed(state, partition)
        newest = len(state.owners[partition]) - 1
        owner = owners.ended(state.owners[partition][newest], closing.end)
        ended = state.with_owner(partition, newest, owner)
        state = owners.committed(ended, partition, newest, len(owner.assigned))
        opened = state.heads[partition].open
        if all(done != (partition, closing.end.number) for done in state.dones):
            return f"T7: partition {partition} never acknowledges the end of number {closing.end.number}"
        if opened is not None and opened.number <= closing.end.number:
            return f"T7: partition {partition} keeps number {opened.number} open after its end"
    return None
