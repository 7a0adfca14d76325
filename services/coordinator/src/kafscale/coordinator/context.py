"""What every handler of this service is given."""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.coordinator.producer_ids import ProducerIdBlocks
from kafscale.storage.membership import LiveView


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorContext:
    front_doors: LiveView
    producer_ids: ProducerIdBlocks
