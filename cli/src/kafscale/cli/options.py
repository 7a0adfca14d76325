"""What the commands can be told. Values only: the command line is read before anything else is imported."""

from __future__ import annotations

from enum import StrEnum

SERVICES = ("produce", "fetch", "coordinator", "admin", "frontdoor")
"""What clients need, in the order in which it starts."""
UPKEEP = "upkeep"
ROLES = (*SERVICES, UPKEEP)
WHAT_THEY_DO = {
    "frontdoor": "Accepts connections of Kafka clients and routes each request to a service.",
    "produce": "Accepts records: assigns offsets, writes segments, commits.",
    "fetch": "Serves records to consumers.",
    "coordinator": "Coordinates consumer groups and hands out producer ids.",
    "admin": "Manages topics and configs, and answers metadata and admin requests.",
    UPKEEP: "Runs retention, compaction and lag samples; one instance works, others stand by.",
}
"""In the order in which people read of them: help, pages, dashboards."""


class StoreKind(StrEnum):
    """Where records go: into the data directory, or to the S3 that KAFSCALE_S3_* names."""

    DIR = "dir"
    S3 = "s3"


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
