"""What every handler of this service is given."""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.coordinator.consumer.model import Rules as ConsumerRules
from kafscale.coordinator.groups.commits import Commits
from kafscale.coordinator.groups.host import Groups
from kafscale.coordinator.groups.running_clock import RunningClock
from kafscale.coordinator.producer_ids import ProducerIdBlocks
from kafscale.coordinator.slots import Slots
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
    consumer_rules: ConsumerRules
    offset_metadata_bytes_max: int
    answer_bytes_max: int
