"""Several writers, an etcd and an S3 with every request in the hands of the test.

A world is a set of moves: send, deliver a request (any, any time later, twice, or never), lose an
answer, claim, crash, pause, checkpoint, collect orphans, delete the topic and create it again. The
laws are checked with each move (`writer_truth`). A search picks moves at random or by Hypothesis; a
script picks them by name.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kafscale.produce.log.model import (
    Action,
    Checkpointed,
    CommitHead,
    Drained,
    FoundObject,
    HeadObject,
    Instant,
    Limits,
    MetaWrite,
    PartitionId,
    Published,
    PutObject,
    Reply,
    SealWanted,
    State,
    StepDownReason,
    SteppedDown,
    TakeCheckpoint,
)
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.log.writer import PartitionWriter
from kafscale.storage.heads import Head, Meta, decode_head, decode_meta, encode_head, encode_meta
from kafscale.storage.keys import TopicId
from kafscale.storage.manifests import encode_manifest, ref_to
from kafscale.storage.segment import walk_batches
from kafscale.storage.snapshots import decode_snapshot, encode_snapshot
from kafscale.testkit.models import ModelEtcd, ModelS3
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import read_batch_header
from writer_clients import Idempotent, Plain, Send, ensure, told
from writer_truth import KEYS, TOPIC, Truth

LIMITS = Limits(
    seal_bytes_max=400,
    linger_min_ms=0,
    checkpoint_at=3,
    tail_keep=1,
    checkpoint_retry_ms=10,
    held_bytes_max=4000,
)
TIMEOUT_MS = 5_000


@dataclass(slots=True, eq=False)
class Request:
    """Something on its way to a store. `run` is its effect there and gives what to tell the sender."""

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


class World:
    """`flaw` hooks let a test plant one mistake; unplanted they do what the protocol says."""

    writer_type: type[PartitionWriter] = PartitionWriter

    def __init__(self, instances: int = 2) -> None:
        self.s3 = ModelS3()
        self.etcd = ModelEtcd()
        self.now_ms = 1_000
        self.network: list[Request] = []
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

    @staticmethod
    def _topic_id(number: int) -> TopicId:
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

    # --- ownership -----------------------------------------------------------------------------

    def claim(self, instance: int) -> None:
        """Anybody, at any time. A new writer starts from what the stores say and nothing else."""
        mine = self.serving[instance]
        if mine is not None and mine.paused:
            return
        if mine is not None:
            mine.writer.step_down(StepDownReason.ORDERED, self.now())
            self._drain(mine)
        stored = self.etcd.get(self.head_key())
        over = 0 if stored is None else stored.mod_revision
        old = Head(epoch=self.epoch_floor, topic=TOPIC) if stored is None else decode_head(stored.value)
        head = replace(old, epoch=old.epoch + 1, owner=f"{instance}/boot", handoff_to="")
        revision = self.put_head(self.truth, over, head)
        assert revision is not None, "read and compared in one step"
        writer = self.make_writer(head, revision)
        owner = Owner(instance, writer, self.truth)
        self.plant(owner)
        self.serving[instance] = owner
        self.owners = [o for o in self.owners if not o.gone and o.writer.state is not State.CLOSED]
        self.owners.append(owner)

    def make_writer(self, head: Head, revision: int) -> PartitionWriter:
        return self.writer_type(
            PartitionId(topic=TOPIC, topic_id=self.truth.topic_id, partition=0),
            head,
            revision,
            producers=self.recover(head),
            log_start=0,
            limits=LIMITS,
            names=KEYS,
            ids=self._attempt_of(self.truth.topic_id),
        )

    def plant(self, owner: Owner) -> None:
        """For flaws that change a part of a writer."""

    def _attempt_of(self, topic_id: TopicId) -> Callable[[], bytes]:
        def draw() -> bytes:
            attempt = self.fresh_id()
            self.topic_of_attempt[attempt] = topic_id
            return attempt

        return draw

    def recover(self, head: Head) -> ProducerTable:
        """Snapshot, then the headers of the committed segments after it."""
        snapshot = None
        if head.snap_key:
            data = self.s3.get(head.snap_key)
            ensure(data is not None, "the producer snapshot is gone")
            snapshot = decode_snapshot(data or b"")
        table = ProducerTable.restore(snapshot)
        for seg in head.tail:
            if seg.end <= head.snap_offset:
                continue
            body = self.s3.get(KEYS.segment_key(TOPIC, 0, seg.base), if_match=seg.etag)
            ensure(body is not None, "a committed segment cannot be read")
            assert body is not None
            headers = [read_batch_header(body, span.position) for span in walk_batches(body)]
            table.replay(headers, seg.created_ms)
        self.truth.producers_are(table)
        return table

    def crash(self, instance: int) -> None:
        owner = self.serving[instance]
        if owner is None:
            return
        for other in self.owners:
            if other.instance == instance:
                other.gone = True
        self.serving[instance] = None
        for token, (send, holder) in list(self.tokens.items()):
            if holder.gone:
                del self.tokens[token]
                self._hear(send, ErrorCode.REQUEST_TIMED_OUT)

    def pause(self, instance: int) -> None:
        for owner in self.owners:
            owner.paused |= owner.instance == instance

    def resume(self, instance: int) -> None:
        for owner in self.owners:
            if owner.instance == instance and owner.paused and not owner.gone:
                owner.paused = False
                waiting, owner.inbox = owner.inbox, []
                for hear in waiting:
                    hear()
                self._drain(owner)

    def handoff(self, instance: int) -> None:
        owner = self.serving[instance]
        if owner is not None and not owner.paused:
            owner.writer.begin_handoff(self.now())
            self._drain(owner)

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
        if owner is None:
            return
        producer = self.idempotent[which]
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
            token, memoryview(send.batch.data), deadline_ms=self.now_ms + TIMEOUT_MS, now=self.now()
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
            case SealWanted() | Published() | Checkpointed():
                pass

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

    # --- checkpoints, orphans, topics ----------------------------------------------------------

    def checkpoint(self, instance: int, *, fails: bool = False) -> None:
        """The shell finishes the uploads of the oldest plan."""
        owner = self.serving[instance]
        if owner is None or owner.paused or not owner.plans:
            return
        plan, revision = owner.plans.pop(0)
        if fails:
            owner.writer.checkpoint_failed(plan.plan, self.now())
        else:
            meta, at = self._meta(owner.truth)
            if at == revision and plan.manifest is not None:
                name = KEYS.manifest_key(
                    owner.truth.topic_id, 0, plan.manifest.segments[0].base, self._uuid()
                )
                self.s3.put(name, (encode_manifest(plan.manifest),), None, {})
                ref = ref_to(name, plan.manifest)
                meta = replace(meta, chunks=(*meta.chunks, ref), manifest_end=ref.last + 1)
            snap = KEYS.snapshot_key(owner.truth.topic_id, 0, plan.snapshot.offset, self._uuid())
            self.s3.put(snap, (encode_snapshot(plan.snapshot),), None, {})
            write = MetaWrite(expected_revision=revision, value=encode_meta(meta))
            owner.writer.checkpoint_ready(plan.plan, snap, write, self.now())
        self._drain(owner)

    def _uuid(self) -> str:
        return self.fresh_id().hex()

    def touch_meta(self) -> None:
        """The collector of unnamed orphans raises its fence."""
        meta, revision = self._meta(self.truth)
        if self.etcd.get(self.head_key()) is not None:
            raised = encode_meta(replace(meta, gc_seq=meta.gc_seq + 1))
            self.etcd.txn({self.meta_key(): revision}, {self.meta_key(): raised})

    def janitor(self, at: int) -> None:
        """Condemn one orphan of the topic's tree; the DELETE travels like any request."""
        head = self.head()
        if head is None:
            return
        orphans = [key for key in self._tree() if self._is_orphan(key, head)]
        if orphans:
            self._send_delete(orphans[at % len(orphans)], conditional=self.janitor_is_conditional)

    janitor_is_conditional = True
    deletion_is_conditional = True

    def _tree(self) -> list[str]:
        return sorted(key for key in self.s3.objects if key.startswith(KEYS.topic_prefix(TOPIC)))

    def _is_orphan(self, key: str, head: Head) -> bool:
        """Not committed, and of an epoch that is over."""
        if key in self.truth.etags:
            return False
        return int(self.s3.objects[key].metadata["kfs-epoch"]) < head.epoch

    def _send_delete(self, key: str, *, conditional: bool) -> None:
        etag = self.s3.objects[key].etag

        def run() -> Callable[[], None]:
            self.s3.delete(key, etag if conditional else None)
            self._object_changed(key)
            return lambda: None

        self.network.append(Request(f"delete {key[-8:]}", None, run, lambda: None))

    def recreate_topic(self) -> None:
        """Heads first, then objects, then the name is free; old writers and requests go on."""
        head = self.head()
        if head is None or not head.next:
            return
        self.truth.alive = False
        self.epoch_floor = self.next_floor(head)
        self.etcd.txn({}, {}, deletes=[self.head_key(), self.meta_key()])
        for key in self._tree():
            self._send_delete(key, conditional=self.deletion_is_conditional)
        self.truth = Truth(self._topic_id(len(self.incarnations)), self.s3)
        self.incarnations.append(self.truth)
        self.plain.insert(0, Plain(f"p{len(self.incarnations)}"))
        self.idempotent = [Idempotent(10 * len(self.incarnations) + n) for n in range(2)]

    def next_floor(self, head: Head) -> int:
        return head.epoch

    # --- the end -------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything arrives and everybody runs; then the log must take writes and hold all that it promised."""
        for instance in range(len(self.serving)):
            self.resume(instance)
        self._settle()
        self.claim(0)
        owner = self.serving[0]
        assert owner is not None
        for which in range(len(self.idempotent)):
            self.idempotent[which].reset()
        self._resend_all()
        self.send_plain(0)
        self._settle()
        last = self.plain[0]
        ensure(
            f"{last.name}-{last.sent - 1}".encode() in self.truth.places, "a healed partition takes no write"
        )
        ensure(not self.tokens, "a request was never answered")
        for producer in self.idempotent:
            for batch in producer.batches:
                ensure(
                    all(value in self.truth.places for value in batch.values), "an idempotent record is lost"
                )

    def _resend_all(self) -> None:
        for _ in range(60):
            for which in range(len(self.idempotent)):
                self.send_idempotent(0, which, fresh=False)
            self._settle()
            if all(producer.done for producer in self.idempotent):
                return
        ensure(False, "an idempotent producer never gets through")

    def _settle(self) -> None:
        for _ in range(200):
            while self.network:
                self.deliver(0)
            for instance in range(len(self.serving)):
                self.checkpoint(instance)
            if not self.network and not self.tokens:
                return
            self.tick(200)
