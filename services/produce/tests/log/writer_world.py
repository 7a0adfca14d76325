"""A world of several writers, an etcd and an S3, as a set of moves.

Claim, crash, pause, hand over, checkpoint, collect orphans, delete the topic and create it again;
sending and the network are in `writer_shell`. The laws are checked with each move (`writer_truth`).
A search picks moves at random or by Hypothesis; a script picks them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafscale.log.heads import Head, decode_head, encode_meta
from kafscale.log.manifests import encode_manifest, ref_to
from kafscale.log.places import place_of
from kafscale.log.snapshots import decode_snapshot, encode_snapshot
from kafscale.log.transactions import stored_batches
from kafscale.produce.log.model import (
    MetaWrite,
    PartitionId,
    State,
    StepDownReason,
)
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.log.writer import PartitionWriter
from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode
from writer_clients import Idempotent, Plain, ensure
from writer_shell import Owner, Request, Shell
from writer_truth import KEYS, TOPIC, Truth


class World(Shell):
    """The methods from `plant` on that flaws override say what the protocol does."""

    table_type = ProducerTable

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
            limits=self.limits,
            names=KEYS,
            ids=self._attempt_of(self.truth.topic_id),
            kept=self.kept,
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
        table = self.table_type.restore(snapshot)
        table.hold({each.producer_id for each in head.open})
        for seg in head.tail:
            if seg.end <= head.snap_offset:
                continue
            place = place_of(KEYS, TOPIC, 0, seg)
            whole = self.s3.get(place.key, if_match=seg.etag)
            ensure(whole is not None, "a committed segment cannot be read")
            assert whole is not None
            body = whole[place.start : place.end]
            table.replay(stored_batches(body), seg.created_ms)
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

    # --- checkpoints, orphans, topics ----------------------------------------------------------

    def checkpoint(self, instance: int, *, fails: bool = False) -> None:
        """The shell finishes the uploads of the oldest plan."""
        owner = self.serving[instance]
        if owner is None or owner.paused or not owner.plans:
            return
        plan, revision = owner.plans.pop(0)
        if fails:
            owner.writer.plan_failed(plan.plan, self.now())
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
            for _ in plan.snapshot.steps():
                pass
            data = plan.snapshot.data() or encode_snapshot(plan.snapshot.offset, ())
            owner.truth.transactions.snapshot_is(decode_snapshot(data))
            self.s3.put(snap, (data,), None, {})
            write = MetaWrite(expected_revision=revision, value=encode_meta(meta))
            owner.writer.checkpoint_ready(plan.plan, snap, write, self.now())
        self._drain(owner)

    def _uuid(self) -> str:
        return self.fresh_id().hex()

    def touch_meta(self) -> None:
        """The collector of unnamed orphans raises its fence, or somebody deletes half of the records."""
        meta, revision = self._meta(self.truth)
        head = self.head()
        if head is None:
            return
        start = (meta.log_start + head.next + 1) // 2
        touched = replace(meta, gc_seq=meta.gc_seq + 1, log_start=start)
        if self.etcd.txn({self.meta_key(): revision}, {self.meta_key(): encode_meta(touched)}) is not None:
            self.truth.log_start = start

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
