"""Simulated producers, which retry as Kafka's clients do, and remember the answers.

A plain producer sends each value once; a value answered as failed must never be seen. An idempotent
one keeps its batches in sequence: after any failure its connection is lost with all that was in
flight on it, and it sends everything unacknowledged again, oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from kafscale.produce.log.model import Reply
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch

IN_FLIGHT_MAX = 5
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
DEFINITE = RETRIABLE - {ErrorCode.REQUEST_TIMED_OUT}


def time_of(number: int) -> int:
    """Of a producer's record: times go up and down along a log, as clients' clocks and backfills make them."""
    return 1_000 + number * 37 % 61


def records_of(values: list[bytes], first: int) -> list[Record]:
    """`first` is the number of the first one."""
    return [Record(value=value, timestamp=time_of(number)) for number, value in enumerate(values, first)]


class Violation(AssertionError):
    """A law of the protocol was broken."""


def ensure(holds: bool, law: str) -> None:
    if not holds:
        raise Violation(law)


@dataclass(slots=True)
class Batch:
    values: list[bytes]
    data: bytes
    first_seq: int = -1
    number: int | None = None  # of its transaction
    acked: bool = False


class Hearing(Protocol):
    """Whatever sent a request."""

    def hear(self, send: Send, error: ErrorCode) -> None: ...


@dataclass(slots=True)
class Send:
    """One request of one batch to one writer."""

    batch: Batch
    producer: Hearing
    connection: int
    answered: bool = False


@dataclass(slots=True)
class Plain:
    """acks=all, no retries: each value is sent once."""

    name: str
    sent: int = 0
    failed: set[bytes] = field(default_factory=set)
    connection: int = 0

    def make(self, count: int) -> Batch:
        values = [f"{self.name}-{self.sent + n}".encode() for n in range(count)]
        data = build_batch(records_of(values, self.sent))
        self.sent += count
        return Batch(values, data)

    def hear(self, send: Send, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            send.batch.acked = True
        elif error in DEFINITE:
            self.failed.update(send.batch.values)
        else:
            ensure(error is ErrorCode.REQUEST_TIMED_OUT, f"a correct batch was answered {error.name}")


@dataclass(slots=True)
class Idempotent:
    """Its batches stand in `batches` in sequence order; `flying` are those of this connection."""

    producer_id: int
    epoch: int = 0
    next_seq: int = 0
    connection: int = 0
    batches: list[Batch] = field(default_factory=list)
    flying: list[Batch] = field(default_factory=list)

    def make(self, count: int) -> Batch:
        seq = self.next_seq
        values = [f"i{self.producer_id}-{seq + n}".encode() for n in range(count)]
        data = build_batch(
            records_of(values, seq),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=seq,
        )
        self.next_seq += count
        batch = Batch(values, data, seq)
        self.batches.append(batch)
        return batch

    def next_to_send(self) -> Batch | None:
        """The oldest batch that is neither acknowledged nor in flight."""
        if len(self.flying) >= IN_FLIGHT_MAX:
            return None
        for batch in self.batches:
            if not batch.acked and not any(batch is flying for flying in self.flying):
                return batch
        return None

    @property
    def done(self) -> bool:
        return all(batch.acked for batch in self.batches)

    def reset(self) -> None:
        """The connection is gone: what was in flight has an unknown fate."""
        self.connection += 1
        self.flying = []

    def hear(self, send: Send, error: ErrorCode) -> None:
        if send.connection != self.connection:
            return
        head_of_line = self.flying[0] is send.batch
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            send.batch.acked = True
            self.flying = [batch for batch in self.flying if batch is not send.batch]
            return
        fatal = error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and head_of_line
        ensure(not fatal, "the oldest request of an idempotent producer was called out of order: fatal")
        ensure(
            error in RETRIABLE or error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"a correct batch was answered {error.name}",
        )
        self.reset()


def told(reply: Reply) -> str:
    return f"{reply.error.name} at {reply.base_offset}"
