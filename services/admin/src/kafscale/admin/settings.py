"""Settings of the admin service: what every service has, and the defaults of new topics."""

from __future__ import annotations

from kafscale.runtime.settings import ServiceSettings
from pydantic import Field


class AdminSettings(ServiceSettings):
    auto_create_topics_enable: bool = Field(
        True, description="Metadata creates the unknown topics that it names."
    )
    num_partitions: int = Field(
        1, ge=1, le=10_000, description="Partitions of topics created without a count."
    )
    auto_create_topics_per_request: int = Field(
        10,
        ge=1,
        le=1_000,
        description="Topics that one Metadata creates; the client asks again for the rest.",
    )
    topics_max: int = Field(20_000, ge=1, description="Topics that the cluster may have.")
    partitions_max: int = Field(200_000, ge=1, description="Partitions that all topics together may have.")
    group_configs_max: int = Field(10_000, ge=0, description="Groups that may have their own configs.")
