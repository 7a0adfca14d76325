"""The stores, the network between, the producers, and the shell around each writer.

Every request waits in `network` until the test delivers it: at once, late, twice, or never, with or
without its answer. Nothing here decides; the moves that decide are in `writer_world`.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from kafscale.log.heads import Head, Meta, decode_head, decode_meta, encode_head
from kafscale.produce.log.model import (
    Action,
    Checkpointed,
    CommitHead,
    Drained,
    HeadObject,
    Instant,
    Limits,
    MetaWrite,
    Published,
    PutObject,
    Reply,
    SettleRun,
    StepDownReason,
    SteppedDown,
    TakeCheckpoint,
)
from kafscale.produce.log.settling import KeptBudget
from kafscale.produce.log.uploading import FoundObject
from kafscale.produce.log.writer import PartitionWriter
from kafscale.storage.keys import TopicId
from kafscale.testkit.models import ModelEtcd, ModelS3
from kafscale.wire.errors import ErrorCode
from writer_clients import Idempotent, Plain, Send, ensure, told
from writer_truth import KEYS, Truth

LIMITS = Limits(
    seal_bytes_max=400,
    direct_bytes=1,
    checkpoint_at=3,
    tail_keep=1,
    checkpoint_retry_ms=10,
    held_bytes_max=4000,
)
TIMEOUT_MS = 5_000


@dataclass(slots=True, eq=False)
class Request:
    """Something on its way to a store. `run` is its effect there and returns the answer to the sender."""

    what: str
    owner: Owner | None
    run: Callable[[], Callable[[], None]]
    unknown: Callable[[], None]
    awaited: bool = True


@dataclass(slots=True, eq=False)
class Owner:
    """One writer with its shell, on one instance."""

    instance: int
    writer: PartitionWriter
    truth: Truth
    paused: bool = False
    gone: bool = False  # crashed: hears nothing and says nothing
    inbox: list[Callable[[], None]] = field(default_factory=list)
    plans: list[tuple[TakeCheckpoint, int]] = field(
        default_factory=list
    )  # with meta's revision at their start
    waiting: dict[int, list[int]] = field(default_factory=dict)  # for a join: tokens by producer id


class Network:
    """Requests on their way. The test delivers each at once, late, twice, or never."""

    def __init__(self) -> None:
        self.network: list[Request] = []

    def deliver(self, at: int = 0, *, lose_answer: bool = False, keep: bool = False) -> None:
        """Execute a request. `keep`: a copy of it will arrive once more, later."""
        request = self.network[at]
        if not keep:
            del self.network[at]
        tell = request.run()
        if request.awaited:
            request.awaited = False
            self._tell(request, request.unknown if lose_answer else tell)

    def drop(self, at: int = 0) -> None:
        request = self.network.pop(at)
        if request.awaited:
            self._tell(request, request.unknown)

    def forget(self, at: int = 0) -> None:
        """The sender stops waiting; the request is still on its way."""
        request = self.network[at]
        if request.awaited:
            request.awaited = False
            self._tell(request, request.unknown)

    def _tell(self, request: Request, tell: Callable[[], None]) -> None:
        """The sender hears the answer, or that there is none."""
        tell()


class Shell(Network):
    """`flaw` hooks let a test plant one mistake; unplanted they do what the protocol says."""

    writer_type: type[PartitionWriter] = PartitionWriter
    limits = LIMITS
    kept: KeptBudget | None = None

    def __init__(self, instances: int = 2) -> None:
        super().__init__()
        self.s3 = ModelS3()
        self.etcd = ModelEtcd()
        self.now_ms = 1_000
        self.serving: list[Owner | None] = [None] * instances
        self.owners: list[Owner] = []
        self.truth = Truth(self._topic_id(0), self.s3)
        self.incarnations = [self.truth]
        self.topic_of_attempt: dict[bytes, TopicId] = {}
        self.epoch_floor = 0
        self.plain = [Plain("p")]
        self.idempotent = [Idempotent(7), Idempotent(8)]
        self.tokens: dict[int, tuple[Send, Owner]] = {}
        self._token = itertools.count(1)
        self._ids = itertools.count(1)

    # --- small things --------------------------------------------------------------------------

    def _topic_id(self, number: int) -> TopicId:
        return TopicId(number.to_bytes(16, "big"))

    def now(self) -> Instant:
        return Instant(self.now_ms, 1_700_000_000_000 + self.now_ms)

    def fresh_id(self) -> bytes:
        return hashlib.md5(next(self._ids).to_bytes(8, "big"), usedforsecurity=False).digest()

    def head_key(self, truth: Truth | None = None) -> bytes:
        return KEYS.head((truth or self.truth).topic_id, 0)

    def meta_key(self, truth: Truth | None = None) -> bytes:
        return KEYS.meta((truth or self.truth).topic_id, 0)

    def head(self) -> Head | None:
        stored = self.etcd.get(self.head_key())
        return None if stored is None else decode_head(stored.value)

    def _meta(self, truth: Truth) -> tuple[Meta, int]:
        stored = self.etcd.get(self.meta_key(truth))
        return (Meta(), 0) if stored is None else (decode_meta(stored.value), stored.mod_revision)

    def put_head(self, truth: Truth, over: int, head: Head, meta: MetaWrite | None = None) -> int | None:
        """The one way a head changes: compared, and looked at by the truth."""
        key = self.head_key(truth)
        before = self.etcd.get(key)
        compares, puts = self.fence(truth, over, head), {key: encode_head(head)}
        if meta is not None:
            compares[self.meta_key(truth)] = meta.expected_revision
            puts[self.meta_key(truth)] = meta.value
        revision = self.etcd.txn(compares, puts)
        if revision is not None and truth.alive:
            truth.head_changed(None if before is None else decode_head(before.value), head)
            if meta is not None:
                truth.checkpointed(head, decode_meta(meta.value))
        return revision

    def fence(self, truth: Truth, over: int, head: Head) -> dict[bytes, int]:
        return {self.head_key(truth): over}

    # --- clients -------------------------------------------------------------------------------

    def _target(self, instance: int) -> Owner | None:
        owner = self.serving[instance]
        return None if owner is None or owner.paused or owner.gone else owner

    def send_plain(self, instance: int, count: int = 1) -> None:
        owner = self._target(instance)
        if owner is not None:
            producer = self.plain[0]
            self._append(owner, Send(producer.make(count), producer, 0))

    def send_idempotent(self, instance: int, which: int = 0, *, fresh: bool = True, count: int = 1) -> None:
        """The next batch in sequence. The front door keeps a lane on one writer."""
        owner = self._target(instance)
        if owner is not None:
            self._send_next(owner, self.idempotent[which], fresh=fresh, count=count)

    def _send_next(self, owner: Owner, producer: Idempotent, *, fresh: bool, count: int) -> None:
        if producer.flying and not any(
            send.producer is producer and send.connection == producer.connection and holder is owner
            for send, holder in self.tokens.values()
        ):
            producer.reset()
        if producer.next_to_send() is None and fresh and len(producer.flying) < 5:
            producer.make(count)
        batch = producer.next_to_send()
        if batch is not None:
            producer.flying.append(batch)
            self._append(owner, Send(batch, producer, producer.connection))

    def lose_connection(self, which: int) -> None:
        """The producer gives up waiting, and will send again what the writer may still be at."""
        self.idempotent[which].reset()

    def _append(self, owner: Owner, send: Send) -> None:
        token = next(self._token)
        self.tokens[token] = (send, owner)
        owner.writer.append(
            token,
            memoryview(send.batch.data),
            deadline_ms=self.now_ms + TIMEOUT_MS,
            now=self.now(),
        )
        self._drain(owner)

    def _reply(self, owner: Owner, reply: Reply) -> None:
        ensure(reply.token in self.tokens, f"request {reply.token} was answered twice")
        send, _ = self.tokens.pop(reply.token)
        if reply.error is ErrorCode.NONE:
            owner.truth.acknowledged(reply.base_offset, send.batch.values)
        elif reply.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and owner.truth.alive:
            known = all(value in owner.truth.places for value in send.batch.values)
            ensure(known, f"{told(reply)} for a batch that is not in the log")
        self._hear(send, reply.error)
        if isinstance(send.producer, Plain):
            owner.truth.was_failed(send.producer.failed & set(send.batch.values))

    @staticmethod
    def _hear(send: Send, error: ErrorCode) -> None:
        send.producer.hear(send, error)

    # --- the network ---------------------------------------------------------------------------

    def _tell(self, request: Request, tell: Callable[[], None]) -> None:
        owner = request.owner
        if owner is None or owner.gone:
            return
        if owner.paused:
            owner.inbox.append(tell)
            return
        tell()
        self._drain(owner)

    def tick(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        for owner in self.owners:
            if not owner.gone and not owner.paused:
                due = owner.writer.next_deadline()
                if due is not None and due <= self.now_ms:
                    owner.writer.tick(self.now())
                self._drain(owner)

    # --- the shell -----------------------------------------------------------------------------

    def _drain(self, owner: Owner) -> None:
        actions = owner.writer.take_actions()
        while actions:
            for action in actions:
                self._perform(owner, action)
            actions = owner.writer.take_actions()

    def _perform(self, owner: Owner, action: Action) -> None:
        match action:
            case PutObject():
                self._send_put(owner, action)
            case HeadObject():
                self._send_head(owner, action)
            case CommitHead():
                self._send_commit(owner, action, ambiguous=False)
            case Reply():
                self._reply(owner, action)
            case TakeCheckpoint():
                owner.plans.append((action, self._meta(owner.truth)[1]))
            case Drained():
                self._send_release(owner)
            case SteppedDown():
                if self.serving[owner.instance] is owner:
                    self.serving[owner.instance] = None
            case SettleRun() | Published() | Checkpointed():
                self.noticed(owner, action)

    def noticed(self, owner: Owner, action: Action) -> None:
        """Here nothing follows from it: each request is a segment of its own, and no slices are written."""

    def _send_put(self, owner: Owner, action: PutObject) -> None:
        writer, base, part = owner.writer, action.base, action.part

        def run() -> Callable[[], None]:
            etag = self.s3.put(action.key, action.body, action.condition, action.metadata)
            self._object_changed(action.key)
            if etag is None:
                return lambda: writer.upload_conflict(base, part, self.now())
            return lambda: writer.upload_done(base, part, etag, self.now())

        unknown = self._unknown_upload(owner, base, part)
        self.network.append(Request(f"put {base} {part.name}", owner, run, unknown))

    def _send_head(self, owner: Owner, action: HeadObject) -> None:
        writer, base, part = owner.writer, action.base, action.part

        def run() -> Callable[[], None]:
            info = self.s3.head(action.key)
            found = info and FoundObject.from_metadata(info.etag, info.size, info.metadata)
            return lambda: writer.object_found(base, part, found, self.now())

        unknown = self._unknown_upload(owner, base, part)
        self.network.append(Request(f"head {base} {part.name}", owner, run, unknown))

    def _unknown_upload(self, owner: Owner, base: int, part: object) -> Callable[[], None]:
        return lambda: owner.writer.upload_unknown(base, part, self.now())  # type: ignore[arg-type]

    def _send_commit(self, owner: Owner, action: CommitHead, *, ambiguous: bool) -> None:
        writer, truth = owner.writer, owner.truth

        def run() -> Callable[[], None]:
            revision = self.put_head(truth, action.expected_revision, action.head, action.meta)
            if revision is not None:
                return lambda: writer.committed(action.txn, revision, self.now())
            stored = self.etcd.get(self.head_key(truth))
            current = None if stored is None else decode_head(stored.value)
            at = 0 if stored is None else stored.mod_revision
            return lambda: writer.commit_refused(action.txn, current, at, ambiguous=ambiguous, now=self.now())

        self.network.append(
            Request(f"commit {action.txn}", owner, run, lambda: self.commit_unknown(owner, action))
        )

    def commit_unknown(self, owner: Owner, action: CommitHead) -> None:
        """The committer's rule: the identical request again, until there is an answer."""
        self._send_commit(owner, action, ambiguous=True)

    def _send_release(self, owner: Owner) -> None:
        head, over = owner.writer.released_head("9"), owner.writer.revision

        def run() -> Callable[[], None]:
            self.put_head(owner.truth, over, head)
            return lambda: owner.writer.step_down(StepDownReason.RELEASED, self.now())

        stop = lambda: owner.writer.step_down(StepDownReason.RELEASED, self.now())  # noqa: E731
        self.network.append(Request("release", owner, run, stop))

    def _object_changed(self, key: str) -> None:
        for truth in self.incarnations:
            truth.object_changed(key)
