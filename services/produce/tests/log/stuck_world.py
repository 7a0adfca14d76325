"""One instance with a `Gather`, and partitions whose settling always fails, as after the loss of a bundle.

The law: such a partition stops no other. Its own writes wait when its tail is full. When nothing is on its way, no
place for a bundle is taken, and every other partition takes writes.
"""

from __future__ import annotations

from instances_world import InstancesWorld, PartitionWorld
from kafscale.log.heads import TAIL_MAX
from kafscale.produce.bundles.gather import STUCK_MS, Gather, GatherLimits, TokenBucket
from kafscale.produce.log.model import Action, Published, SteppedDown
from kafscale.produce.log.settling import RETRY_MAX_MS
from kafscale.storage.keys import BundleId
from writer_clients import ensure
from writer_shell import Owner

STUCK = 6
FREE = 2
FULL_BUT = 4
"""Places that are left in the tails of the stuck partitions when a walk begins."""


class StuckPartition(PartitionWorld):
    """It reports to the gather what became of its slices, as the product's shell does."""

    kept_bytes = 0
    settling_fails = False

    def settle(self, at: int, *, fails: bool = False) -> None:
        super().settle(at, fails=fails or self.settling_fails)

    def _perform(self, owner: Owner, action: Action) -> None:
        super()._perform(owner, action)
        if isinstance(action, SteppedDown):
            self._crowd.stopped(self, owner)

    def noticed(self, owner: Owner, action: Action) -> None:
        super().noticed(owner, action)
        if isinstance(action, Published):
            for seg in action.segments:
                self._crowd.committed(self, owner, seg.bundle)

    @property
    def _crowd(self) -> StuckWorld:
        assert isinstance(self._whole, StuckWorld)
        return self._whole


class StuckWorld(InstancesWorld):
    """The partitions from `STUCK` on are free."""

    partition_type = StuckPartition

    def __init__(self) -> None:
        super().__init__(instances=1, partitions=STUCK + FREE)
        self.kept.bytes_max = 0  # nothing is folded
        self.gather: Gather[PartitionWorld] = Gather(
            GatherLimits(linger_ms=0),
            bundles=TokenBucket(None, 1, self.now_ms),
            heads=TokenBucket(None, 1, self.now_ms),
        )
        self._undecided: dict[tuple[PartitionWorld, Owner], dict[bytes, int]] = {}
        for at in range(len(self.parts)):
            self.claim(at, 0)
        for part in self.stuck:
            part.settling_fails = True
            while len(self._tail(part)) < TAIL_MAX - FULL_BUT:
                part.send_plain(0)
                self.tick(300)
                self.deliver_everything()

    @property
    def stuck(self) -> list[StuckPartition]:
        return [part for part in self.parts[:STUCK] if isinstance(part, StuckPartition)]

    def _tail(self, part: PartitionWorld) -> tuple[object, ...]:
        head = part.head()
        return head.tail if head is not None else ()

    # --- the instance --------------------------------------------------------------------------

    def seal(self, instance: int) -> None:
        """What the pump does after the drives."""
        for part in self.parts:
            owner = part.serving[instance]
            self.gather.want(part, owner.writer.wants() if owner is not None else None)
        while (sealing := self.gather.take(self.now_ms)) is not None:
            bundle = self.seal_slices(instance, sealing.keys)
            for part in sealing.keys:
                owner = part.serving[instance]
                if owner is not None:
                    self._undecided.setdefault((part, owner), {})[bundle] = sealing.number

    def committed(self, part: PartitionWorld, owner: Owner, bundle: bytes) -> None:
        number = self._undecided.get((part, owner), {}).pop(bundle, None)
        if number is not None:
            self.gather.decided(number, part, self.now_ms)

    def stopped(self, part: PartitionWorld, owner: Owner) -> None:
        for bundle in list(self._undecided.get((part, owner), ())):
            self.committed(part, owner, BundleId(bundle))

    # --- the law -------------------------------------------------------------------------------

    def deliver_everything(self) -> None:
        """All requests arrive, also those that follow from them. Plans end; those of stuck partitions fail."""
        while busy := [net for net in (self, *self.parts) if net.network]:
            busy[0].deliver()
        for part in self.parts:
            while part._plans:
                part.settle(0)
                while part.network:
                    part.deliver()

    def check_the_free(self) -> None:
        for _ in range(8):
            self.tick(STUCK_MS)
            self.deliver_everything()
        ensure(
            not self.gather.in_flight,
            f"{self.gather.in_flight} bundles are in flight, and nothing is on its way",
        )
        for part in self.parts[STUCK:]:
            part.claim(0)
            before = part.plain[0].sent
            part.send_plain(0)
            for _ in range(3):
                self.tick(STUCK_MS // 2)
                self.deliver_everything()
            value = f"{part.plain[0].name}-{before}".encode()
            ensure(value in part.truth.places, "a partition that settles takes no write")

    def heal(self) -> None:
        """Settling succeeds again: then the stuck partitions take writes too."""
        self.healing = True
        for part in self.stuck:
            part.settling_fails = False
        for _ in range(4):
            self.tick(RETRY_MAX_MS)
            self.deliver_everything()
        for part in self.parts:
            part.heal()
