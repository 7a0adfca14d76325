"""Mistakes to plant, one at a time: each law of the protocol must be missed when it is gone.

The first ten are the ablations of the model-checked protocol; the rest are this implementation's
own. A flaw is a world whose writers, shell or stores differ in exactly one decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from kafscale.log.heads import Head, OpenTransaction
from kafscale.produce.log.flight import Flight, Objects
from kafscale.produce.log.ledger import Answers, Ledger, Outcome, Sent
from kafscale.produce.log.model import CommitHead, Instant, Part, PutObject, Reply, Token, Waiter
from kafscale.produce.log.producers import ProducerTable, SnapshotWork
from kafscale.produce.log.uploading import Claimant, FoundObject, Uploads
from kafscale.produce.log.writer import PartitionWriter
from kafscale.wire.errors import ErrorCode
from writer_shell import Owner
from writer_truth import Truth
from writer_world import World


class _Unconditional(Uploads):
    def _put(self, flight: Flight, home: Objects, part: Part) -> None:
        super()._put(flight, home, part)
        put = self._actions[-1]
        assert isinstance(put, PutObject)
        self._actions[-1] = replace(put, condition=None)  # type: ignore[arg-type]


class UncondPut(World):
    """Segments are PUT without a condition."""

    def plant(self, owner: Owner) -> None:
        owner.writer._uploads.__class__ = _Unconditional


class NoFence(World):
    """A commit compares the log end instead of the head's revision."""

    def fence(self, truth: Truth, over: int, head: Head) -> dict[bytes, int]:
        there = self.head()
        base = next((seg.base for seg in head.tail if there and seg.base == there.next), None)
        if truth is self.truth and there is not None and base is not None:
            return {}
        return super().fence(truth, over, head)


class AmbigFail(World):
    """A commit whose answer is lost counts as failed."""

    def commit_unknown(self, owner: Owner, action: CommitHead) -> None:
        owner.writer.commit_refused(
            action.txn, owner.writer.head, owner.writer.revision, ambiguous=False, now=self.now()
        )


class _AllMine(Uploads):
    def claimant(self, seen: FoundObject | None, attempt: bytes) -> Claimant:
        return Claimant.NOBODY if seen is None else Claimant.ME


class NoEtag(World):
    """A failed condition is taken for an earlier PUT of this owner."""

    def plant(self, owner: Owner) -> None:
        owner.writer._uploads.__class__ = _AllMine


class _AllOlder(Uploads):
    def claimant(self, seen: FoundObject | None, attempt: bytes) -> Claimant:
        claimant = super().claimant(seen, attempt)
        return Claimant.OLDER if claimant in (Claimant.EPOCH, Claimant.NEWER) else claimant


class OverwriteAny(World):
    """Any object at the segment's name is replaced, newer epochs' objects too."""

    def plant(self, owner: Owner) -> None:
        owner.writer._uploads.__class__ = _AllOlder


class _EagerWriter(PartitionWriter):
    def upload_done(self, base: int, part: Part, etag: str, now: Instant) -> None:
        self._uploads.done(base, part, etag)
        for flight in self._uploads:
            if flight.home.uploaded:
                self._answers.acknowledge(flight.waiters.take_all(), 0)
        self._advance(now)


class AckUploaded(World):
    """Requests are acknowledged when their segment is in the store, before the commit."""

    writer_type = _EagerWriter


class EpochRestarts(World):
    """A topic created again starts at epoch 1, and another topic's object counts as older."""

    def next_floor(self, head: Head) -> int:
        return 0

    def plant(self, owner: Owner) -> None:
        topic_of, mine = self.topic_of_attempt, owner.truth.topic_id

        class _ByTopic(Uploads):
            def claimant(self, seen: FoundObject | None, attempt: bytes) -> Claimant:
                claimant = super().claimant(seen, attempt)
                if (
                    claimant in (Claimant.EPOCH, Claimant.NEWER)
                    and seen is not None
                    and topic_of.get(seen.attempt or b"") != mine
                ):
                    return Claimant.OLDER
                return claimant

        owner.writer._uploads.__class__ = _ByTopic


class Blind412(World):
    """A failed condition ends the epoch without a look at what is there."""

    def plant(self, owner: Owner) -> None:
        class _Blind(Uploads):
            def claimant(self, seen: FoundObject | None, attempt: bytes) -> Claimant:
                return Claimant.NEWER

        owner.writer._uploads.__class__ = _Blind


class TopicDeleteUncond(World):
    """The objects of a deleted topic are deleted without their etags."""

    deletion_is_conditional = False


class GcUncond(World):
    """Orphans are deleted without their etags."""

    janitor_is_conditional = False


class _Unstamped(Uploads):
    def add(self, flight: Flight) -> None:
        assert isinstance(flight.home, Objects)
        index = flight.home.index
        plain = bytes(index.body[0])
        index.body = (plain[:14] + bytes(2) + plain[16:],)
        super().add(flight)


class UnstampedIndex(World):
    """Indexes of two epochs may have equal bytes, hence equal etags."""

    def plant(self, owner: Owner) -> None:
        owner.writer._uploads.__class__ = _Unstamped


class NoReplay(World):
    """A new owner trusts the snapshot and does not read the segments after it."""

    def recover(self, head: Head) -> ProducerTable:
        return super().recover(replace(head, tail=()))


class _AheadTable(ProducerTable):
    __slots__ = ()

    def begin_snapshot(
        self,
        below: int,
        wall_ms: int,
        begun: tuple[OpenTransaction, ...] = (),
        *,
        transactional: bool = False,
    ) -> SnapshotWork:
        work = super().begin_snapshot(below, wall_ms, begun, transactional=transactional)
        work.__class__ = _AheadWork
        return work


class _AheadWork(SnapshotWork):
    __slots__ = ()

    def steps(self) -> Iterator[None]:
        return self._table.renew_parts(1 << 62)


class SnapshotAhead(World):
    """A producer snapshot holds batches that are not committed yet."""

    def recover(self, head: Head) -> ProducerTable:
        table = super().recover(head)
        table.__class__ = _AheadTable
        return table


class _Forgotten(Sent):
    def judge_commit(self, current: Head | None, *, ambiguous: bool) -> Outcome:
        return Outcome.ABSENT


class _Forgetful(Ledger):
    def take_sent(self, txn: int) -> Sent | None:
        sent = super().take_sent(txn)
        return sent and _Forgotten(**{each.name: getattr(sent, each.name) for each in fields(sent)})


class NoEvidence(World):
    """A commit refused when it was sent again is taken for absent without a look at the head."""

    def plant(self, owner: Owner) -> None:
        owner.writer._ledger.__class__ = _Forgetful


class _Impatient(Answers):
    def fail(self, waiters: Sequence[Waiter], error: ErrorCode) -> None:
        certain = ErrorCode.NOT_ENOUGH_REPLICAS if error is ErrorCode.REQUEST_TIMED_OUT else error
        super().fail(waiters, certain)


class TimeoutIsFailure(World):
    """A request at its deadline is called failed although its bytes are under way."""

    def plant(self, owner: Owner) -> None:
        owner.writer._answers.__class__ = _Impatient


class _HastyWriter(PartitionWriter):
    def _repeat(self, token: int | None, known: object, deadline_ms: int) -> None:
        assert token is not None
        self._actions.append(Reply(token=token, error=ErrorCode.NONE, base_offset=known.base))  # type: ignore[attr-defined]


class RepeatAcked(World):
    """The repeat of a batch in flight is acknowledged at once."""

    writer_type = _HastyWriter


class _CertainWriter(PartitionWriter):
    def _doubt(self, token: Token, deadline_ms: int, answer: ErrorCode) -> None:
        self._actions.append(Reply(token=token, error=answer))


class ZombieGap(World):
    """A writer calls a gap without having proved that it is still the owner."""

    writer_type = _CertainWriter


class _ShufflingUploads(Uploads):
    def take_uploaded(self, room: int) -> list[Flight]:
        ready = [flight for flight in self.flights if flight.home.uploaded][:room]
        for flight in ready:
            self.flights.remove(flight)
        return ready


class OutOfOrder(World):
    """Segments are committed in the order in which their uploads end."""

    def plant(self, owner: Owner) -> None:
        owner.writer._uploads.__class__ = _ShufflingUploads


ABLATIONS: dict[str, type[World]] = {
    "UNCOND_PUT": UncondPut,
    "NO_FENCE": NoFence,
    "AMBIG_FAIL": AmbigFail,
    "NO_ETAG": NoEtag,
    "OVERWRITE_ANY": OverwriteAny,
    "ACK_UPLOADED": AckUploaded,
    "EPOCH_RESTARTS": EpochRestarts,
    "BLIND_412_FAIL": Blind412,
    "TOPIC_DELETE_UNCOND": TopicDeleteUncond,
    "GC_UNCOND": GcUncond,
}

OWN_FLAWS: dict[str, type[World]] = {
    "UNSTAMPED_INDEX": UnstampedIndex,
    "NO_REPLAY": NoReplay,
    "SNAPSHOT_AHEAD": SnapshotAhead,
    "NO_EVIDENCE": NoEvidence,
    "TIMEOUT_IS_FAILURE": TimeoutIsFailure,
    "REPEAT_ACKED": RepeatAcked,
    "ZOMBIE_GAP": ZombieGap,
    "OUT_OF_ORDER": OutOfOrder,
}
