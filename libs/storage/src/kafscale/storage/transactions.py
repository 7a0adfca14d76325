"""The stored values of transactions: the state of a transactional id, and the offsets that a transaction has pending.

Pure. The decision of a transaction is one compare-and-swap of the id's state: `current` becomes `closing`. `closing`
goes when each participant has confirmed the end. Each transaction has a number, so an end names one transaction and
never only a producer id and an epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafscale.storage.groups import CommittedOffset, committed_from_pb, committed_to_pb
from kafscale.storage.keys import TOPIC_ID_BYTES, PartitionKey, TopicId
from kafscale.storage.schema import SCHEMA, CorruptValue, parse_value
from kafscale.store.v1 import store_pb2 as pb

NO_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1

Participant = PartitionKey | str
"""A partition, or the id of a group."""


class Outcome(Enum):
    NONE = pb.TransactionState.NONE
    COMMIT = pb.TransactionState.COMMIT
    ABORT = pb.TransactionState.ABORT


PARTITION_BYTES_MAX: Final = 27
"""Of a partition in a record, with its topic id."""
GROUP_BYTES_MAX: Final = 3
"""Of a group in a record, in addition to its name."""


@dataclass(frozen=True, slots=True)
class Participants:
    """Where a transaction has records or offsets."""

    partitions: frozenset[PartitionKey] = frozenset()
    groups: frozenset[str] = frozenset()

    @classmethod
    def of(cls, *participants: Participant) -> Participants:
        groups = frozenset(each for each in participants if isinstance(each, str))
        return cls(frozenset(each for each in participants if not isinstance(each, str)), groups)

    def __iter__(self) -> Iterator[Participant]:
        yield from self.partitions
        yield from self.groups

    def __len__(self) -> int:
        return len(self.partitions) + len(self.groups)

    def __le__(self, other: Participants) -> bool:
        return self.partitions <= other.partitions and self.groups <= other.groups

    def __or__(self, other: Participants) -> Participants:
        return Participants(self.partitions | other.partitions, self.groups | other.groups)

    def __and__(self, other: Participants) -> Participants:
        return Participants(self.partitions & other.partitions, self.groups & other.groups)

    def __sub__(self, other: Participants) -> Participants:
        return Participants(self.partitions - other.partitions, self.groups - other.groups)

    @property
    def bytes_max(self) -> int:
        """What they take in a record at most."""
        groups = sum(GROUP_BYTES_MAX + len(each.encode()) for each in self.groups)
        return PARTITION_BYTES_MAX * len(self.partitions) + groups


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingTransaction:
    """A transaction that was decided. `awaited`: the participants that have not confirmed the end."""

    number: int
    producer_id: int
    marker_epoch: int
    bumped: bool
    commit: bool
    coordinator_epoch: int
    awaited: Participants


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """`{prefix}/x/{slot}/{id}`. The fields are explained in `store.proto`."""

    id: str
    producer_id: int
    epoch: int = 0
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_PRODUCER_ID
    timeout_ms: int
    number: int = 0
    started_ms: int = 0
    changed_ms: int
    last: Outcome = Outcome.NONE
    last_bumped: bool = False
    current: Participants | None = None
    closing: ClosingTransaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffset:
    """`since`: the revision that wrote the offset; 0: the one that wrote the value with it."""

    topic_id: TopicId
    partition: int
    offset: CommittedOffset
    since: int = 0

    @property
    def where(self) -> PartitionKey:
        return self.topic_id, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffsets:
    """`{prefix}/cp/{slot}/{group}/{producer id}`. No partition is in it twice."""

    group: str
    producer_id: int
    epoch: int
    number: int
    offsets: tuple[PendingOffset, ...]


def encode_transaction(state: TransactionState) -> bytes:
    """Equal states have equal bytes."""
    message = pb.TransactionState(
        schema=SCHEMA,
        id=state.id,
        producer_id=state.producer_id,
        epoch=state.epoch,
        last_epoch=state.last_epoch,
        previous_id=state.previous_id,
        timeout_ms=state.timeout_ms,
        number=state.number,
        started_ms=state.started_ms,
        changed_ms=state.changed_ms,
        last=state.last.value,
        last_bumped=state.last_bumped,
    )
    if state.current is not None:
        message.current.CopyFrom(_participants_to_pb(state.current))
    if (closing := state.closing) is not None:
        message.closing.CopyFrom(
            pb.ClosingTransaction(
                number=closing.number,
                producer_id=closing.producer_id,
                marker_epoch=closing.marker_epoch,
                bumped=closing.bumped,
                commit=closing.commit,
                coordinator_epoch=closing.coordinator_epoch,
                awaited=_participants_to_pb(closing.awaited),
            )
        )
    return message.SerializeToString(deterministic=True)


def decode_transaction(data: bytes) -> TransactionState:
    message = pb.TransactionState()
    parse_value(message, data, "transaction")
    try:
        last = Outcome(message.last)
    except ValueError as error:  # an enum value that this version does not know
        raise CorruptValue("transaction", str(error)) from error
    return TransactionState(
        id=message.id,
        producer_id=message.producer_id,
        epoch=message.epoch,
        last_epoch=message.last_epoch,
        previous_id=message.previous_id,
        timeout_ms=message.timeout_ms,
        number=message.number,
        started_ms=message.started_ms,
        changed_ms=message.changed_ms,
        last=last,
        last_bumped=message.last_bumped,
        current=_participants_from_pb(message.current) if message.HasField("current") else None,
        closing=_closing_from_pb(message.closing) if message.HasField("closing") else None,
    )


def encode_pending(pending: PendingOffsets) -> bytes:
    message = pb.PendingOffsets(
        schema=SCHEMA,
        group=pending.group,
        producer_id=pending.producer_id,
        epoch=pending.epoch,
        number=pending.number,
    )
    for each in pending.offsets:
        message.offsets.add(
            topic_id=each.topic_id,
            partition=each.partition,
            offset=committed_to_pb(each.offset),
            since=each.since,
        )
    return message.SerializeToString()


def decode_pending(data: bytes) -> PendingOffsets:
    message = pb.PendingOffsets()
    parse_value(message, data, "value of pending offsets")
    offsets = tuple(
        PendingOffset(
            topic_id=_topic_id("value of pending offsets", each.topic_id),
            partition=each.partition,
            offset=committed_from_pb(each.offset),
            since=each.since,
        )
        for each in message.offsets
    )
    if len({each.where for each in offsets}) != len(offsets):
        raise CorruptValue("value of pending offsets", "it has a partition twice")
    return PendingOffsets(
        group=message.group,
        producer_id=message.producer_id,
        epoch=message.epoch,
        number=message.number,
        offsets=offsets,
    )


def _closing_from_pb(message: pb.ClosingTransaction) -> ClosingTransaction:
    return ClosingTransaction(
        number=message.number,
        producer_id=message.producer_id,
        marker_epoch=message.marker_epoch,
        bumped=message.bumped,
        commit=message.commit,
        coordinator_epoch=message.coordinator_epoch,
        awaited=_participants_from_pb(message.awaited),
    )


def _participants_to_pb(participants: Participants) -> pb.Participants:
    by_topic: dict[TopicId, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(participants.partitions):
        by_topic[topic_id].append(partition)
    message = pb.Participants(groups=sorted(participants.groups))
    for topic_id, some in by_topic.items():
        message.partitions.add(topic_id=topic_id, partitions=some)
    return message


def _participants_from_pb(message: pb.Participants) -> Participants:
    partitions = frozenset(
        (_topic_id("transaction", each.topic_id), partition)
        for each in message.partitions
        for partition in each.partitions
    )
    return Participants(partitions, frozenset(message.groups))


def _topic_id(kind: str, data: bytes) -> TopicId:
    if len(data) != TOPIC_ID_BYTES:
        raise CorruptValue(kind, f"{data!r} is no topic id")
    return TopicId(data)
