"""What the commands can be told. Values only: the command line is read before anything else is imported."""

from __future__ import annotations

from enum import StrEnum

SERVICES = ("produce", "fetch", "coordinator", "admin", "frontdoor")
"""What clients need, in the order in which it starts."""
UPKEEP = "upkeep"
ROLES = (*SERVICES, UPKEEP)
WHAT_THEY_DO = {
    "frontdoor": "Takes Kafka clients' connections and sends each request to the service that answers it.",
    "produce": "Takes records: gives them offsets, writes segments, commits.",
    "fetch": "Gives records to readers.",
    "coordinator": "Runs consumer groups and gives producers their ids.",
    "admin": "Answers for topics, their configs, and what tools ask of the cluster.",
    UPKEEP: "Retention, compaction and samples of lag; one works, others stand by.",
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
