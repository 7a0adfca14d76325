"""Settings of the admin service: what every service has, and the defaults of new topics."""

from __future__ import annotations

from kafscale.runtime.settings import ServiceSettings
from pydantic import Field


class AdminSettings(ServiceSettings):
    auto_create_topics_enable: bool = Field(True, description="Metadata creates the topics it is asked for.")
    num_partitions: int = Field(
        1, ge=1, le=10_000, description="Partitions of topics created without a count."
    )
    topic_listing_bytes_max: int = Field(
        64 << 20,
        ge=1 << 20,
        description="Largest Metadata answer; past it the request fails with a sentence in the log.",
    )
