"""Instances that write bundles for several partitions, and producers whose transactions have records in some of them.

Each partition is a `TransactionWorld`, and each producer has a lane in each. Its coordinator decides for all lanes, and
awaits the end in those that joined. The laws are those of both worlds. At the end, T1 counts for each partition: the
records of a committed transaction are there and under a commit marker, wherever they are, and of no other one.
"""

from __future__ import annotations

from bundle_world import BundleWorld
from instances_world import InstancesWorld, PartitionWorld
from transaction_world import TransactionWorld

PARTITIONS = 3


class TransactionPartition(TransactionWorld, PartitionWorld):
    """One of the partitions."""

    def __init__(self, number: int, whole: InstancesWorld, instances: int) -> None:
        PartitionWorld.__init__(self, number, whole, instances)
        self.begin_transactions()


class TransactionsWorld(InstancesWorld):
    """Moves of producers concern all their partitions; the others are those of a partition or an instance."""

    partition_type: type[TransactionPartition] = TransactionPartition
    parts: list[TransactionPartition]  # type: ignore[assignment]

    def __init__(self, instances: int = 2) -> None:
        super().__init__(instances, PARTITIONS)
        for lanes in zip(*(part.transactional for part in self.parts), strict=True):
            for lane in lanes:
                lane.lanes = list(lanes)

    def decide(self, which: int, *, commit: bool) -> None:
        self.parts[0].decide(which, commit=commit)

    def lose_connections(self, which: int) -> None:
        """The producer sends again what is not acknowledged."""
        for part in self.parts:
            part.transactional[which].reset()

    def end(self, instance: int, which: int) -> None:
        """The coordinator's message to an instance has the ends of all its partitions."""
        for part in self.parts:
            part.end(instance, which)

    def rush(self) -> None:
        """All that is on its way arrives, and its answers."""
        for instance in range(self.instances):
            self.seal(instance)
        for network in (self, *self.parts, *self.parts):
            for _ in range(len(network.network)):
                if network.network:
                    network.deliver(0)

    def heal(self) -> None:
        self.healing = True
        for instance in range(self.instances):
            self.resume(instance)
        for part in self.parts:
            BundleWorld.heal(part)
        for _ in range(20):
            for part in self.parts:
                part.go_on()
            for which in range(len(self.parts[0].transactional)):
                self.decide(which, commit=True)
            for part in self.parts:
                part.end_all()
                part._settle()
        for part in self.parts:
            part.judge()
