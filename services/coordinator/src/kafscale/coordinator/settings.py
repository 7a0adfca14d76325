"""Settings of the coordinator service, in addition to the shared ones. The names are Kafka's."""

from __future__ import annotations

from typing import Literal

from kafscale.coordinator.classic import model as classic
from kafscale.coordinator.consumer import model as consumer
from kafscale.runtime.settings import ServiceSettings
from pydantic import Field

MINUTE_MS = 60_000


class CoordinatorSettings(ServiceSettings):
    groups_max: int = Field(
        100_000,
        ge=1,
        description="Groups that one coordinator creates. It may take over more from other coordinators.",
    )
    group_consumer_assignor: Literal["uniform", "range"] = Field(
        "uniform", description="Assignor of consumer groups (KIP-848) whose members name none."
    )

    transaction_max_timeout_ms: int = Field(
        900_000, ge=1, description="Longest transaction timeout that a producer may request."
    )
    transactional_id_expiration_ms: int = Field(
        604_800_000, ge=1, description="An unused transactional id is forgotten after this time."
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
