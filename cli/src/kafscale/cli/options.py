"""What the commands can be told. Values only: the command line is read before anything else is imported."""

from __future__ import annotations

from enum import StrEnum

SERVICES = ("produce", "fetch", "coordinator", "admin", "frontdoor")
"""What clients need, in the order in which it starts."""
UPKEEP = "upkeep"
ROLES = (*SERVICES, UPKEEP)


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
