"""Values of options, and the roles. This module imports nothing heavy, because every command line needs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

DEFAULT_DATA_DIR: Final = Path("data")
"""The default of `--data-dir`."""
SERVICES = ("produce", "fetch", "coordinator", "admin", "frontdoor")
"""The services that clients need, in start order."""
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
"""In the order of help texts, pages and dashboards."""


class StoreKind(StrEnum):
    """Where records are stored: in the data directory, or in the S3 bucket that KAFSCALE_S3_* names.

    The kinds of `kafscale.storage.objects` that outlive a process; a test compares them.
    """

    DIR = "dir"
    S3 = "s3"


@dataclass(frozen=True, slots=True)
class Target:
    """What --data-dir, --namespace and --store say of a cluster's etcd and object store, for `clusters.opened`."""

    data_dir: Path | None
    namespace: str | None
    store: StoreKind = StoreKind.DIR


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


COMPLETE_VARIABLE: Final = "_KAFSCALE_COMPLETE"
"""A shell sets it to get the completions of a line."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
