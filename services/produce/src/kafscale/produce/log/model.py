"""What goes into a partition writer, what it holds, what comes out: values only.

The shell feeds `PartitionWriter` (writer.py) by its methods and then performs `take_actions()` in
order. Every action that asks for I/O has an *identity* and gets exactly one answer by the method
named in its docstring; a retry is a new action. The writer never awaits, reads no clock and draws
no randomness: `Instant` and the id source are arguments. Timers are fields: the shell arms one
timer at `next_deadline()` and calls `tick`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from kafscale.log.heads import Head, Seg
from kafscale.log.manifests import Manifest
from kafscale.produce.log.producers import SnapshotWork
from kafscale.storage.keys import TopicId
from kafscale.storage.objects import IfAbsent, IfMatch
from kafscale.wire.compression import Compression
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import BatchHeader

Buffer = bytes | bytearray | memoryview
Batches = list[tuple[BatchHeader, memoryview]]
"""Of one record set, each with its bytes."""


class Checked(NamedTuple):
    """A batch that is sound. Its largest timestamp is `newest_ms`, whatever the header says."""

    header: BatchHeader
    batch: memoryview
    oldest_ms: int
    newest_ms: int


class Arrival(NamedTuple):
    """How a record set came."""

    wall_ms: int
    zstd_allowed: bool = True  # Produce v7+
    converted: bool = False  # made of a message set, whose messages were all read
    light: bool = True  # what is light may be opened at once


Token = int
"""Names one waiting request of the shell; the writer only echoes it."""

NEVER = 1 << 62
"""A time that does not come."""
NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_BOUND_MS = (1 << 63) - 1


class Instant(NamedTuple):
    """The time of an event. Deadlines and lingers use `mono_ms`; stored timestamps use `wall_ms`."""

    mono_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionId:
    topic: str
    topic_id: TopicId
    partition: int


class Waiter(NamedTuple):
    """A request that this flight's commit will answer, or a doubt, with the answer if this writer still owns the
    partition."""

    token: Token
    base_offset: int
    log_append_time_ms: int
    deadline_ms: int
    error: ErrorCode = ErrorCode.NONE


class Waiters:
    """Requests of one buffer, with their earliest deadline at hand."""

    __slots__ = ("deadline_ms", "items")

    def __init__(self) -> None:
        self.items: list[Waiter] = []
        self.deadline_ms = NEVER

    def add(self, waiter: Waiter) -> None:
        self.items.append(waiter)
        if waiter.deadline_ms < self.deadline_ms:
            self.deadline_ms = waiter.deadline_ms

    def take_expired(self, mono_ms: int) -> list[Waiter]:
        if self.deadline_ms > mono_ms:
            return []
        expired = [waiter for waiter in self.items if waiter.deadline_ms <= mono_ms]
        self.items = [waiter for waiter in self.items if waiter.deadline_ms > mono_ms]
        self.deadline_ms = min((waiter.deadline_ms for waiter in self.items), default=NEVER)
        return expired

    def take_all(self) -> list[Waiter]:
        taken, self.items, self.deadline_ms = self.items, [], NEVER
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one writer. `PartitionWriter.configure` replaces them at any time."""

    segment_bytes: int = 1 << 30
    seal_bytes_max: int = 4 << 20  # a segment grows to min(segment_bytes, this)
    direct_bytes: int = 1 << 20  # a buffer with as much does not wait for a bundle
    pipeline_max: int = 4  # sealed and not yet committed
    linger_ms: int = 0  # the topic's: records are kept out of bundles so long
    flush_interval_ms: int = 250  # and so long at most; also while a flight is under way
    max_message_bytes: int = 1_048_588
    held_bytes_max: int = 64 << 20  # open buffer and pipeline; past it appends get error 19
    retry_first_ms: int = 50  # of an object request whose outcome is unknown; doubles
    retry_max_ms: int = 2_000
    upload_give_up_ms: int = 60_000  # then the epoch is reset, to free memory
    checkpoint_at: int = 24  # tail segments
    tail_keep: int = 8  # of which a checkpoint leaves the newest so many inline
    tail_rest_ms: int | None = (
        None  # all but the newest segment leave a tail that long after there are two, or sooner
    )
    checkpoint_retry_ms: int = 1_000
    settle_ms: int = 900_000  # the age at which a slice of a bundle is settled
    log_append_time: bool = False  # message.timestamp.type=LogAppendTime
    future_max_ms: int = NO_BOUND_MS  # message.timestamp.after.max.ms
    past_max_ms: int = NO_BOUND_MS  # message.timestamp.before.max.ms
    keys_required: bool = False  # cleanup.policy=compact
    compression: Compression | None = None  # compression.type, unless it is the producer's
    trusts_headers: bool = False  # of all producers; see `Opening`
    transactions: bool = False  # batches of transactions are taken

    @property
    def seal_bytes(self) -> int:
        """What settling fills a segment to."""
        return min(self.segment_bytes, self.seal_bytes_max)

    @property
    def full_bytes(self) -> int:
        """A buffer of so many bytes becomes a segment of its own at once."""
        return min(self.seal_bytes, self.direct_bytes)

    @property
    def looks_inside(self) -> bool:
        """Whether the topic asks for what no header says: keys, or the least time of the records."""
        return self.keys_required or (self.past_max_ms < NO_BOUND_MS and not self.log_append_time)


class Part(Enum):
    """The two objects of a segment. Both are uploaded, and both named by etag in the commit."""

    SEGMENT = auto()
    INDEX = auto()


class State(Enum):
    """Where a writer is in its life; it only moves downwards.

    SERVING   accepts appends.                        → DRAINING, CLOSING, CLOSED
    DRAINING  `begin_handoff`: refuses appends, commits what it has, checkpoints.  → DRAINED, CLOSING, CLOSED
    DRAINED   everything is committed; the released head may be written.           → CLOSED
    CLOSING   stepped down, but a commit in flight still decides requests.         → CLOSED
    CLOSED    nothing is pending. Forget the object; claim again for a new one.
    """

    SERVING = auto()
    DRAINING = auto()
    DRAINED = auto()
    CLOSING = auto()
    CLOSED = auto()


class StepDownReason(Enum):
    """Why a writer stopped. Requests that no transaction ever carried are answered by `error`."""

    FENCED = auto()  # a newer epoch holds the head or an object name
    TOPIC_DELETED = auto()  # the head is gone
    FOREIGN_OBJECT = auto()  # an object of another program has our name: alarm, a person must look
    STORE_FULL = auto()
    STORE_REFUSED = auto()
    STORE_UNAVAILABLE = auto()  # for longer than upload_give_up_ms
    COMMIT_REJECTED = auto()  # etcd refused the request as such: our bug, or our rights
    DAMAGED = auto()  # what etcd keeps of the partition cannot be read: alarm, a person must look
    ORDERED = auto()  # the shell asked for it: memory pressure, owner record changed, shutdown
    RELEASED = auto()  # handed over

    @property
    def error(self) -> ErrorCode:
        return _STEP_DOWN_ERROR.get(self, ErrorCode.KAFKA_STORAGE_ERROR)


_STEP_DOWN_ERROR = dict.fromkeys(
    (
        StepDownReason.FENCED,
        StepDownReason.TOPIC_DELETED,
        StepDownReason.ORDERED,
        StepDownReason.RELEASED,
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class PutFailure(Enum):
    """A PUT that the store definitely did not do, and that is not a failed condition."""

    FULL = StepDownReason.STORE_FULL
    REFUSED = StepDownReason.STORE_REFUSED

    @property
    def reason(self) -> StepDownReason:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnd:
    """The decision of a transactional id's coordinator about one of its transactions. `marker_epoch` is the
    transaction's producer epoch, or the next one if the decision raised it."""

    producer_id: int
    number: int
    commit: bool
    marker_epoch: int
    coordinator_epoch: int


# --- actions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PutObject:
    """PUT `body` at `key` under `condition`. Identity: (base, part); one outstanding per identity.

    Answer by `upload_done(base, part, etag)`, `upload_conflict(base, part)` (precondition failed,
    or nothing there to match), `upload_unknown(base, part, tried)` (timeout, 5xx, 409, connection lost),
    or `upload_failed(base, part, PutFailure)`. The shell may hedge with an identical second PUT and
    answer by whichever succeeds, but must not answer a conflict while the other is outstanding.
    """

    base: int
    part: Part
    key: str
    body: tuple[Buffer, ...]
    condition: IfAbsent | IfMatch
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadObject:
    """HEAD `key`, started after this action was taken. Identity and order as PutObject.

    Answer by `object_found(base, part, FoundObject | None)` or `upload_unknown(base, part)`.
    """

    base: int
    part: Part
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaWrite:
    """The meta half of a checkpoint: put `value` if meta still has `expected_revision`.

    The revision must have been read before the upload of any object that `value` newly refers to
    *or* that the head of the same transaction refers to began: it is what fences the collector of
    orphans. Revision 0: the key does not exist yet.
    """

    expected_revision: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHead:
    """One nested transaction: if the head has `expected_revision` (and meta its own), put `value`
    (and meta), else read the head. Identity: `txn`; at most one outstanding per writer.

    Answer by exactly one of `committed(txn, revision)`: revision of the whole request;
    `commit_refused(txn, current, revision, ambiguous)`: the head as the failure branch read it and
    its mod_revision, None when the key is gone, ambiguous when an earlier send of these very bytes
    had an unknown outcome; `commit_rejected(txn)`: etcd refused before proposing. An unknown
    outcome is no answer: send the byte-identical request again until there is one.
    """

    txn: int
    expected_revision: int
    head: Head
    value: bytes
    meta: MetaWrite | None = None


class RecordFault(NamedTuple):
    """What is wrong with one record of a request: `record_errors` of Produce v8+ (KIP-467)."""

    record: int  # its place in the record set, from 0
    message: str


class Rejection(NamedTuple):
    """Why a record set is not appended; nothing of it is."""

    error: ErrorCode
    message: str | None = None
    faults: tuple[RecordFault, ...] = ()


class Reply(NamedTuple):
    """The one answer to an append. `base_offset` is real iff `error` is NONE (or a known duplicate).

    A tuple, as there is one for each request: a frozen dataclass takes three times as long to make.
    """

    token: Token
    error: ErrorCode
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    revision: int = 0  # of the commit that made it visible
    message: str | None = None
    faults: tuple[RecordFault, ...] = ()


class Repeated(NamedTuple):
    """What a slice repeats of committed slices (settling.py)."""

    records: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """These segments are committed at `revision`: the caches may have them. No answer. The first may be a fold, so
    `repeated` of it was published before."""

    segments: tuple[Seg, ...]
    next: int
    revision: int
    repeated: Repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeCheckpoint:
    """Move `manifest` out of the head and save `snapshot`. Identity: `plan`.

    In this order: read meta (value and revision); take the snapshot's steps, with other work between them;
    upload the manifest and the snapshot under fresh names; `checkpoint_ready(plan, snap_key, MetaWrite)`. Or
    `plan_failed(plan)`, after which the writer plans again by itself. Commits go on meanwhile; the transaction
    itself comes back as a CommitHead.
    """

    plan: int
    manifest: Manifest | None  # None: nothing to move, only the snapshot (hand-over); meta is put as it was
    snapshot: SnapshotWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """The checkpoint's transaction was applied; `snap_key` replaced `old_snap_key`."""

    snap_key: str
    old_snap_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleRun:
    """Write the batches of these slices as one segment with an ordinary name, as the owner of `epoch`. Identity:
    `plan`.

    Answer by `run_rewritten(plan, seg)`, or by `plan_failed(plan)`, after which the writer plans again by itself.
    """

    plan: int
    run: tuple[Seg, ...]
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Hand-over: all is committed. Write `released_head(handoff_to)` under `revision`, and then
    `step_down(RELEASED)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedDown:
    """The writer stopped accepting and will start nothing more. Keep feeding it answers and ticks
    until `state` is CLOSED; a new claim need not wait for that."""

    reason: StepDownReason


Action = (
    PutObject
    | HeadObject
    | CommitHead
    | Reply
    | Published
    | TakeCheckpoint
    | Checkpointed
    | SettleRun
    | Drained
    | SteppedDown
)


class Want(NamedTuple):
    """What the open buffer of a partition holds. It is held for `hold_ms` after its first record."""

    bytes: int
    requests: int
    since_ms: int
    hold_ms: int = 0
    markers: bool = False  # it ends a transaction

    @property
    def held_until_ms(self) -> int:
        return self.since_ms + self.hold_ms
