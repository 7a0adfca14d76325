"""Settings of the admin service, in addition to the shared ones."""

from __future__ import annotations

from pathlib import Path

from kafscale.runtime.settings import ServiceSettings
from pydantic import Field


class AdminSettings(ServiceSettings):
    auto_create_topics_enable: bool = Field(True, description="Whether Metadata creates unknown topics.")
    num_partitions: int = Field(
        1, ge=1, le=10_000, description="Partitions of topics created without a count."
    )
    auto_create_topics_per_request: int = Field(
        10,
        ge=1,
        le=1_000,
        description="Topics that one Metadata request creates. The client retries for the others.",
    )
    topics_max: int = Field(20_000, ge=1, description="Maximum number of topics in the cluster.")
    partitions_max: int = Field(200_000, ge=1, description="Maximum number of partitions in the cluster.")
    group_configs_max: int = Field(
        10_000, ge=0, description="Maximum number of groups with their own configs."
    )
    acls_max: int = Field(20_000, ge=1, description="Maximum number of ACLs.")
    bootstrap_users_file: Path | None = Field(
        None,
        description="File with lines NAME:PASSWORD. Users of it who do not exist are created at the start.",
    )
    users_max: int = Field(
        10_000,
        ge=1,
        description="Maximum number of SCRAM credentials. A user has one for each mechanism.",
    )
    quotas_max: int = Field(
        10_000, ge=1, description="Maximum number of users, client ids and addresses that have quotas."
    )
