"""The fetch service's settings: the shared ones, and its own as KAFSCALE_FETCH_*. Values only."""

from kafscale.runtime.settings import MIB, ServiceSettings
from pydantic import Field


class FetchSettings(ServiceSettings):
    fetch_response_bytes: int = Field(
        55 * MIB, ge=MIB, description="Most record bytes in one response, even if the client allows more."
    )
    fetch_held_requests: int = Field(
        10_000,
        ge=1,
        description="Long polls held at a time; further ones get an empty response with a throttle time.",
    )
    fetch_max_wait_ms: int = Field(300_000, ge=0, description="Longest long poll.")
    fetch_gets: int = Field(32, ge=1, description="Segments read from the object store at a time.")
    fetch_join_segments: int = Field(
        512, ge=1, description="Most segments joined in one partition's response."
    )
    fetch_manifest_segments: int = Field(
        100_000, ge=1, description="Segments listed by the manifests that are kept in memory."
    )
    fetch_read_timeout_ms: int = Field(10_000, ge=1, description="Longest read of one object.")
    fetch_refresh_timeout_ms: int = Field(
        1_000, ge=1, description="Longest linearizable read of etcd before a retriable error is answered."
    )
    fetch_idle_topic_ms: int = Field(
        10_000,
        ge=1_000,
        description="A partition's metadata is dropped after this time without requests. Of at most 600, it is dropped "
        "after a second without requests for any.",
    )
    fetch_partitions: int = Field(
        20_000,
        ge=1,
        description="Partitions whose metadata is kept in memory. Typically 11 KB each, at most about 30 KB.",
    )
