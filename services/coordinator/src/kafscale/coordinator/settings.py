"""The settings of the coordinator service, beside those that every service shares. Names are Kafka's."""

from __future__ import annotations

from typing import Literal

from kafscale.coordinator.classic import model as classic
from kafscale.coordinator.consumer import model as consumer
from kafscale.runtime.settings import ServiceSettings
from pydantic import Field

MINUTE_MS = 60_000


class CoordinatorSettings(ServiceSettings):
    group_min_session_timeout_ms: int = Field(
        6_000, ge=1, description="Shortest session timeout that a member of a classic group may ask for."
    )
    group_max_session_timeout_ms: int = Field(
        1_800_000, ge=1, description="Longest session timeout that a member of a classic group may ask for."
    )
    group_initial_rebalance_delay_ms: int = Field(
        3_000, ge=0, description="The first rebalance of an empty group waits this long for more members."
    )
    groups_max: int = Field(
        100_000,
        ge=1,
        description="Groups that one coordinator creates; it can take over more when others leave.",
    )
    group_max_size: int = Field(1_000, ge=1, description="Members that a group may have.")
    group_consumer_assignor: Literal["uniform", "range"] = Field(
        "uniform", description="Assignor of the new protocol when members name none."
    )
    offsets_retention_minutes: int = Field(
        10_080, ge=1, description="Offsets of a group without members are kept this long."
    )
    offset_metadata_max_bytes: int = Field(
        4_096, ge=0, description="Longest metadata that a committed offset may carry."
    )

    def classic_rules(self) -> classic.Rules:
        return classic.Rules(
            session_timeout_min_ms=self.group_min_session_timeout_ms,
            session_timeout_max_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_size_max=self.group_max_size,
        )

    def consumer_rules(self) -> consumer.Rules:
        return consumer.Rules(
            session_timeout_ms=self.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            default_assignor=consumer.Assignor(self.group_consumer_assignor),
            members_max=self.group_max_size,
        )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS
