"""The world of several writers, whose instances seal slices of bundles and settle them.

A bundle's PUT and each step of settling travel like any request: late, twice, or never. A test may also give a bundle
up while its PUT is still on its way. One partition: what bundles do to several at once is `bundles/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kafscale.log.bundle import Slice, build_bundle
from kafscale.log.heads import Seg
from kafscale.log.places import place_of
from kafscale.log.segment import Buffer, SegmentError
from kafscale.produce.log.flight import Flight, InBundle, stamped
from kafscale.produce.log.model import Action, SettleRun, StepDownReason
from kafscale.produce.log.settling import KeptBudget, Rewrite, settled_seg
from kafscale.produce.log.uploading import Claimant, FoundObject, claimant_of
from kafscale.storage.keys import META_ATTEMPT, META_EPOCH, META_LAST, META_TOPIC_ID, BundleId
from kafscale.storage.objects import Condition, IfAbsent, IfMatch
from writer_clients import ensure
from writer_shell import LIMITS, Owner, Request
from writer_truth import KEYS, TOPIC
from writer_world import World


@dataclass(slots=True)
class Settle:
    """A plan whose objects are being written, one after another."""

    owner: Owner
    plan: SettleRun
    attempt: bytes
    last: int
    todo: list[tuple[str, tuple[Buffer, ...]]]
    condition: Condition = field(default_factory=IfAbsent)
    etags: list[str] = field(default_factory=list)


class BundleWorld(World):
    """The methods that flaws override say what the protocol does."""

    kept_bytes = 1_500
    limits = replace(LIMITS, seal_bytes_max=1_500, direct_bytes=300, settle_ms=2_000, checkpoint_at=8)

    def __init__(self, instances: int = 2) -> None:
        super().__init__(instances)
        self.kept = KeptBudget(self.kept_bytes)
        self._plans: list[tuple[Owner, SettleRun]] = []
        self._flying: list[tuple[Owner, int]] = []  # slices whose bundle has no outcome yet

    # --- bundles -------------------------------------------------------------------------------

    def seal(self, instance: int) -> None:
        """The instance seals what the partition wants."""
        owner = self.serving[instance]
        if owner is None or owner.paused or owner.writer.wants() is None:
            return
        flight = owner.writer.seal_slice(self.now())
        self._send_bundle(owner, flight)
        self._drain(owner)

    def _send_bundle(self, owner: Owner, flight: Flight) -> None:
        bundle_id = BundleId(self.now_ms.to_bytes(6, "big") + self.fresh_id()[:10])
        built = build_bundle(bundle_id, [slice_of(owner, flight)], self.now_ms)
        key, position = KEYS.bundle_key(bundle_id), self.position_of(built.entries[0].position)
        self._flying.append((owner, flight.base))

        def run() -> Callable[[], None]:
            etag = self.s3.put(key, tuple(built.body), IfAbsent(), {})
            there = self.s3.head(key)
            assert there is not None
            ensure(etag in (None, there.etag), "a bundle's name is taken by another object")
            return lambda: self._stored(owner, flight.base, bundle_id, there.etag, position)

        def unknown() -> None:
            self.network.append(Request(f"bundle {flight.base} again", owner, run, unknown))

        self.network.append(Request(f"bundle {flight.base}", owner, run, unknown))

    def position_of(self, position: int) -> int:
        """For flaws: where the commit says that the slice is."""
        return position

    def _stored(self, owner: Owner, base: int, bundle: BundleId, etag: str, position: int) -> None:
        if (owner, base) in self._flying:
            self._flying.remove((owner, base))
            owner.writer.slice_stored(base, bundle, etag, position, self.now())

    def give_up(self, at: int) -> None:
        """The store has not answered for too long. The PUT may arrive yet."""
        if not self._flying:
            return
        owner, base = self._flying.pop(at % len(self._flying))
        if not owner.gone and not owner.paused:
            owner.writer.slice_failed(base, StepDownReason.STORE_UNAVAILABLE, self.now())
            self._drain(owner)

    # --- settling ------------------------------------------------------------------------------

    def noticed(self, owner: Owner, action: Action) -> None:
        if isinstance(action, SettleRun):
            self._plans.append((owner, action))

    def settle(self, at: int, *, fails: bool = False) -> None:
        """The shell begins a plan: it reads the slices, and writes one object after another."""
        if not self._plans:
            return
        owner, plan = self._plans.pop(at % len(self._plans))
        if owner.gone or owner.paused:
            return
        if fails:
            owner.writer.plan_failed(plan.plan, self.now())
            self._drain(owner)
            return
        attempt = self.attempt_of_plan()
        sources = [owner.writer.kept.get(seg) or self._slice(owner, seg) for seg in plan.run]
        if None in sources:
            owner.writer.plan_failed(plan.plan, self.now())
            self._drain(owner)
            return
        rewrite = Rewrite(plan.run, [source for source in sources if source is not None])
        try:
            for _ in rewrite.steps():
                pass
        except SegmentError as error:
            raise AssertionError("a slice is not what its entry says") from error
        segment = rewrite.segment(attempt)
        index = stamped(segment.index, int.from_bytes(attempt[4:6], "big"))
        base = plan.run[0].base
        todo: list[tuple[str, tuple[Buffer, ...]]] = [
            (KEYS.segment_key(TOPIC, 0, base), tuple(segment.body)),
            (KEYS.index_key(TOPIC, 0, base), (index,)),
        ]
        settle = Settle(owner, plan, attempt, segment.last_offset, todo)
        self._put_settled(
            settle,
            lambda: owner.writer.run_rewritten(
                plan.plan, settled_seg(plan.run, segment, *settle.etags), self.now()
            ),
        )

    def attempt_of_plan(self) -> bytes:
        return self.fresh_id()

    def _slice(self, owner: Owner, seg: Seg) -> bytes | None:
        """None: this owner was fenced long ago, and what its head names was settled and deleted."""
        place = place_of(KEYS, TOPIC, 0, seg)
        body = self.s3.get(place.key, if_match=place.etag)
        if body is None:
            head = self.head()
            named = head is not None and owner.truth is self.truth and seg in head.tail
            ensure(not named, "a slice that the head names cannot be read")
            return None
        return body[place.start : place.end]

    def _put_settled(self, settle: Settle, done: Callable[[], None]) -> None:
        key, body = settle.todo[0]
        owner, condition = settle.owner, self.condition_of(settle)
        metadata = {
            META_TOPIC_ID: owner.truth.topic_id.hex(),
            META_EPOCH: str(settle.plan.epoch),
            META_ATTEMPT: settle.attempt.hex(),
            META_LAST: str(settle.last),
        }

        def run() -> Callable[[], None]:
            etag = self.s3.put(key, body, condition, metadata)
            self._object_changed(key)
            if etag is None:
                return lambda: self._look(settle, key, done)
            return lambda: self._went_on(settle, etag, done)

        fail = lambda: owner.writer.plan_failed(settle.plan.plan, self.now())  # noqa: E731
        self.network.append(Request(f"settle {key[-28:]}", owner, run, fail))

    def condition_of(self, settle: Settle) -> Condition:
        return settle.condition

    def _look(self, settle: Settle, key: str, done: Callable[[], None]) -> None:
        """HEAD, in one step with the failed condition's answer: a later change fails the next condition."""
        info = self.s3.head(key)
        found = info and FoundObject.from_metadata(info.etag, info.size, info.metadata)
        match self.claimant(found, settle):
            case Claimant.ME:
                assert info is not None
                self._went_on(settle, info.etag, done)
            case Claimant.NEWER:
                settle.owner.writer.step_down(StepDownReason.FENCED, self.now())
            case Claimant.NOBODY:
                settle.condition = IfAbsent()
                self._put_settled(settle, done)
            case _:
                assert info is not None
                settle.condition = IfMatch(info.etag)
                self._put_settled(settle, done)

    def claimant(self, found: FoundObject | None, settle: Settle) -> Claimant:
        return claimant_of(found, settle.attempt, settle.plan.epoch)

    def _went_on(self, settle: Settle, etag: str, done: Callable[[], None]) -> None:
        settle.etags.append(etag)
        del settle.todo[0]
        settle.condition = IfAbsent()
        if settle.todo:
            self._put_settled(settle, done)
        else:
            done()

    # --- the end -------------------------------------------------------------------------------

    def tick(self, elapsed_ms: int) -> None:
        super().tick(elapsed_ms)
        for instance in range(len(self.serving)):
            self.seal(instance)

    def heal(self) -> None:
        super().heal()
        for _ in range(8):
            self.tick(2_000)
            while self._plans:
                self.settle(0)
                while self.network:
                    self.deliver(0)
        head = self.head()
        assert head is not None
        ensure(not any(seg.is_slice for seg in head.tail), "a slice is never settled")


def slice_of(owner: Owner, flight: Flight) -> Slice:
    """What an owner has sealed, on its way into a bundle."""
    assert isinstance(flight.home, InBundle)
    assert flight.home.built is not None
    return Slice(
        topic_id=owner.truth.topic_id,
        partition=0,
        leader_epoch=owner.writer.head.epoch,
        segment=flight.home.built,
        min_ts=flight.min_ts,
        max_ts=flight.max_ts,
    )
