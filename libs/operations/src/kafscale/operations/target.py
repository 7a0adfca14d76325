"""Which cluster's etcd and object store an operation works on. Imports nothing heavy: every command line needs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

DEFAULT_DATA_DIR: Final = Path("data")
"""The default of `--data-dir`."""


class StoreKind(StrEnum):
    """Where records are stored: in the data directory, or in the S3 bucket that KAFSCALE_S3_* names.

    The kinds of `kafscale.storage.objects` that outlive a process; a test compares them.
    """

    DIR = "dir"
    S3 = "s3"


@dataclass(frozen=True, slots=True)
class Target:
    """What --data-dir, --namespace and --store say of a cluster, for `clusters.opened`."""

    data_dir: Path | None
    namespace: str | None
    store: StoreKind = StoreKind.DIR
