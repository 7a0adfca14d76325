"""Settings of upkeep: what every service has, and how often each job runs."""

from __future__ import annotations

from kafscale.runtime.settings import MIB, ServiceSettings
from kafscale.storage.backups import Keep
from pydantic import Field

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class UpkeepSettings(ServiceSettings):
    retention_grace_ms: int = Field(
        300_000,
        ge=0,
        description="Wait for reads in progress before retention or the collection of orphans deletes objects.",
    )
    orphans_every_ms: int = Field(
        24 * HOUR_MS, ge=1, description="Time from the end of a collection of orphans to the next."
    )
    orphans_objects_max: int = Field(
        50_000,
        ge=16,
        description="Orphans that a collection keeps in memory until they are deleted, some 600 bytes for each.",
    )
    bundles_every_ms: int = Field(
        HOUR_MS, ge=1, description="Time from the end of a sweep of bundles to the next sweep."
    )
    bundles_min_age_ms: int = Field(
        HOUR_MS // 2,
        ge=0,
        description="Age at which a bundle is swept. Younger ones are left to the instance that wrote them.",
    )
    bundles_uncommitted_keep_ms: int = Field(
        DAY_MS,
        ge=0,
        description="Age at which the sweep deletes a bundle with records that no head shows as committed: of a failed "
        "write, or of an etcd that was restored to an older state.",
    )
    bundle_grace_ms: int = Field(
        900_000, ge=0, description="Wait for reads in progress before a bundle is deleted."
    )
    compaction_grace_ms: int = Field(
        300_000,
        ge=0,
        description="Wait for reads in progress before compaction deletes replaced objects.",
    )
    compaction_io_bytes_per_s: int = Field(
        50 * MIB, ge=1, description="Bytes that compaction reads and writes per second."
    )
    backup_every_ms: int = Field(
        0,
        ge=0,
        description="Time from the end of a snapshot of etcd to the next; 0: none. Only for an etcd without users.",
    )
    backup_keep_count: int = Field(
        24, ge=1, description="Snapshots of etcd that are kept, whatever their age."
    )
    backup_keep_ms: int = Field(
        7 * DAY_MS, ge=0, description="Age up to which all snapshots of etcd are kept."
    )
    lag_every_ms: int = Field(
        30_000, ge=1_000, description="Time from the end of a sample of consumer lag to the next."
    )
    lag_keep_ms: int = Field(30 * DAY_MS, ge=DAY_MS, description="How long samples of consumer lag are kept.")
    lag_manifest_cache_bytes: int = Field(
        64 * MIB, ge=0, description="Memory for manifests of up to 256 KiB that samples of lag keep."
    )

    @property
    def backup_keep(self) -> Keep:
        return Keep(count=self.backup_keep_count, age_ms=self.backup_keep_ms)
