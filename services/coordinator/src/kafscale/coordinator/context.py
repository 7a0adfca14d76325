"""What every handler of this service uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafscale.coordinator.groups.commits import Commits
from kafscale.coordinator.groups.joins import GroupJoins
from kafscale.coordinator.groups.registry import Groups
from kafscale.coordinator.groups.running_clock import RunningClock
from kafscale.coordinator.groups.transaction_offsets import TransactionOffsets
from kafscale.coordinator.producer_ids import ProducerIdBlocks
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.coordinator.slots import Slots
from kafscale.coordinator.transactions.registry import TransactionalIds
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.membership.members import LiveView
from kafscale.storage.topics import TopicsView


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorContext:
    front_doors: LiveView
    producer_ids: ProducerIdBlocks
    topics: TopicsView
    clock: RunningClock
    slots: Slots
    groups: Groups
    commits: Commits
    transaction_offsets: TransactionOffsets
    """Has nothing while transactions are off."""
    settings: CoordinatorSettings
    authorization: Authorization
    follow_acls: Callable[[], None]
    """To be called with each heartbeat of a consumer group: regular expressions follow the ACLs."""
    transactional_ids: TransactionalIds | None
    """None: transactions are off."""
    group_joins: GroupJoins | None
    """None: transactions are off."""

    @property
    def joins(self) -> GroupJoins:
        """For the handlers that are offered only while transactions are on."""
        assert self.group_joins is not None, "transactions are off"
        return self.group_joins

    @property
    def ids(self) -> TransactionalIds:
        """For the handlers that are offered only while transactions are on."""
        assert self.transactional_ids is not None, "transactions are off"
        return self.transactional_ids


def client_host(meta: RequestMeta) -> str:
    """A member's host, as DescribeGroups shows it: Java prints an address as a slash and the host without its port."""
    return "/" + (meta.peer or "").rpartition(":")[0]
