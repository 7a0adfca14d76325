"""One writer on a desk: a test plays its shell by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

from kafscale.log.heads import Head
from kafscale.produce.log.flight import Flight
from kafscale.produce.log.model import (
    Action,
    CommitHead,
    HeadObject,
    Instant,
    Limits,
    Part,
    PartitionId,
    PutObject,
    Reply,
    StepDownReason,
    SteppedDown,
)
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.log.settling import KeptBudget
from kafscale.produce.log.writer import PartitionWriter
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch

T = TypeVar("T")
QUICK = Limits(direct_bytes=1)
"""Each request becomes a segment of its own, at once."""
GATHERING = Limits()
"""What is written goes into bundles."""
HEAD = Head(epoch=3, topic="t", owner="1/boot")


def one_batch(value: bytes = b"v", count: int = 1, **fields: int) -> memoryview:
    records = [Record(value=value, timestamp=5) for _ in range(count)]
    return memoryview(build_batch(records, **fields))  # type: ignore[arg-type]


def numbered(seq: int, pid: int = 7) -> memoryview:
    """A batch of an idempotent producer."""
    return one_batch(producer_id=pid, producer_epoch=0, base_sequence=seq)


class Desk:
    """`actions` are those not yet looked at; `replies` are kept apart, by token."""

    def __init__(
        self,
        limits: Limits = QUICK,
        head: Head = HEAD,
        producers: ProducerTable | None = None,
        kept: KeptBudget | None = None,
    ) -> None:
        self._ids = itertools.count(1)
        self.now_ms = 1_000
        self.revision = 100
        self.actions: list[Action] = []
        self.replies: dict[int, Reply] = {}
        self.writer = PartitionWriter(
            PartitionId(topic="t", topic_id=TopicId(bytes(16)), partition=0),
            head,
            self.revision,
            producers=ProducerTable() if producers is None else producers,
            log_start=0,
            limits=limits,
            names=Keyspace(),
            ids=lambda: next(self._ids).to_bytes(16, "big"),
            kept=kept,
        )

    def now(self) -> Instant:
        return Instant(self.now_ms, 1_700_000_000_000 + self.now_ms)

    def take(self) -> None:
        for action in self.writer.take_actions():
            if isinstance(action, Reply):
                assert action.token not in self.replies, "answered twice"
                self.replies[action.token] = action
            else:
                self.actions.append(action)

    def do(self, event: Callable[..., None], *args: object, **more: object) -> None:
        event(*args, **more, now=self.now())
        self.take()

    def append(self, token: int | None, data: memoryview | None = None, *, within_ms: int = 30_000) -> None:
        self.do(
            self.writer.append,
            token,
            data if data is not None else one_batch(),
            deadline_ms=self.now_ms + within_ms,
        )

    def tick(self, elapsed_ms: int = 0) -> None:
        self.now_ms += elapsed_ms
        self.do(self.writer.tick)

    def pop(self, kind: type[T]) -> list[T]:
        taken = [action for action in self.actions if isinstance(action, kind)]
        self.actions = [action for action in self.actions if not isinstance(action, kind)]
        return taken

    def one(self, kind: type[T]) -> T:
        taken = self.pop(kind)
        assert len(taken) == 1, taken
        return taken[0]

    def upload(self, *, only: int | None = None) -> None:
        """All PUTs that are out succeed; or those of one base offset."""
        puts = self.pop(PutObject)
        for put in puts:
            if only is not None and put.base != only:
                self.actions.append(put)
                continue
            self.do(self.writer.upload_done, put.base, put.part, f"etag-{put.base}-{put.part.name}")

    def seal(self) -> Flight:
        """The instance seals what the partition wants."""
        assert self.writer.wants() is not None
        flight = self.writer.seal_slice(self.now())
        self.take()
        return flight

    def store(self, flight: Flight) -> bytes:
        """The bundle of a slice is in the store. Returns its id."""
        bundle = next(self._ids).to_bytes(16, "big")
        self.do(self.writer.slice_stored, flight.base, bundle, f"etag-{flight.base}", 0)
        return bundle

    def commit(self) -> CommitHead:
        """The one transaction that is out is applied."""
        commit = self.one(CommitHead)
        self.revision += 1
        self.do(self.writer.committed, commit.txn, self.revision)
        return commit

    def write(self, token: int, data: memoryview | None = None) -> None:
        """An append through all steps."""
        self.append(token, data)
        self.tick()
        self.upload()
        self.commit()

    def conflict(self, base: int, part: Part = Part.SEGMENT) -> None:
        """The PUT's condition fails; the writer asks what is there."""
        self.actions = [
            a for a in self.actions if not (isinstance(a, PutObject) and (a.base, a.part) == (base, part))
        ]
        self.do(self.writer.upload_conflict, base, part)
        self.one(HeadObject)

    def error(self, token: int) -> ErrorCode:
        return self.replies[token].error

    def stopped(self) -> StepDownReason:
        return self.one(SteppedDown).reason
