"""A KafScale whose etcd is emptied, restored to an older state, or replaced by another cluster's, while it runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.history.history import History as EtcdHistory
from kafscale.storage.history.witness import history_prefix
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore, ObjectStore
from kafscale.testkit.logbuilder import create_topic

from e2e.checkers.history import History
from e2e.harness.bundles import SEGMENTS_OF_TOPIC
from e2e.harness.cluster import KAFSCALE
from e2e.harness.deployment import ROLES, Deployment
from e2e.harness.etcd_tools import restore_etcd
from e2e.harness.inside import get
from e2e.harness.load import Load, read_everything
from e2e.harness.services import until

PARTITIONS: Final = 6
PHASE_RECORDS: Final = 600
COMMAND_S: Final = 180.0
KEYS: Final = Keyspace()
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {"orders": {}, "payments": SEGMENTS_OF_TOPIC}
"""Name -> configs. So the bucket has slices, settled segments, segments of their own, and manifests."""
HASTY: Final = {
    "KAFSCALE_SETTLE_MS": "2000",
    "KAFSCALE_BUNDLE_GRACE_MS": "500",
    "KAFSCALE_BUNDLES_EVERY_MS": "1000",
    "KAFSCALE_BUNDLES_MIN_AGE_MS": "0",
    "KAFSCALE_BUNDLES_UNCOMMITTED_KEEP_MS": "0",
    "KAFSCALE_RETENTION_EVERY_MS": "1000",
    "KAFSCALE_RETENTION_GRACE_MS": "200",
    "KAFSCALE_ORPHANS_EVERY_MS": "1000",
    "KAFSCALE_COMPACTION_EVERY_MS": "1000",
    "KAFSCALE_COMPACTION_GRACE_MS": "200",
}
"""Every deleter runs all the time and waits for nobody."""
STOPPING: Final = ("produce", "admin", "upkeep")
"""The services that know the history."""
DELETING: Final = ("bundles", "retention", "orphans", "compaction")
"""Jobs of upkeep."""


class Loss(StrEnum):
    EMPTIED = "emptied"
    RESTORED = "restored"
    REPLACED = "replaced"


@dataclass(slots=True)
class Counts:
    """Of one loss, for the log of the test."""

    loss: Loss
    store: str
    acknowledged: int = 0
    objects: int = 0
    deleted: int = 0

    def __str__(self) -> str:
        return (
            f"{self.loss} on {self.store}: {self.acknowledged} records acknowledged, {self.objects} objects in the "
            f"bucket when etcd was lost, {self.deleted} of them deleted before the repair"
        )


@dataclass(slots=True)
class Victim:
    """`folder` is empty. Call `start` first and `kill` last."""

    folder: Path
    on_s3: bool
    loads: list[Load] = field(default_factory=list)
    deployment: Deployment = field(init=False)

    def __post_init__(self) -> None:
        self.deployment = Deployment(self.folder, PARTITIONS, on_s3=self.on_s3)

    def start(self) -> None:
        if self.on_s3:
            self.deployment.start_s3()
        self.deployment.start_etcd()
        self.start_services()
        for topic, configs in TOPICS.items():
            words = ["topics", "create", topic, "--partitions", str(PARTITIONS)]
            for key, value in configs.items():
                words += ["--config", f"{key}={value}"]
            self.kafscale(*words, "-b", self.deployment.bootstrap)
            load = Load(self.deployment.bootstrap, topic, PARTITIONS, History())
            load.start("idempotent", idempotent=True)
            load.start("plain", idempotent=False)
            self.loads.append(load)

    def start_services(self) -> None:
        self.deployment.start_services(HASTY, roles=(*ROLES, "upkeep"))
        self.deployment.wait_ready()

    def kill(self) -> None:
        self.deployment.kill()

    def kafscale(self, *words: str) -> str:
        ended = subprocess.run(
            [*KAFSCALE, *words],
            env={**os.environ, **self.deployment.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout + ended.stderr

    # -- the load ----------------------------------------------------------------------------------

    def acknowledged(self) -> int:
        return sum(load.acknowledged() for load in self.loads)

    def write_on(self) -> None:
        for load in self.loads:
            wanted = load.acknowledged() + PHASE_RECORDS
            until(
                f"{wanted} records of {load.topic} are acknowledged", partial(has_acknowledged, load, wanted)
            )

    def end_complete(self) -> None:
        """Every acknowledged record is there once, in its order."""
        for load in self.loads:
            load.stop()
            problems = load.history.violations(
                read_everything(self.deployment.bootstrap, load.topic, PARTITIONS)
            )
            assert problems == [], problems
        assert "clean" in self.kafscale("fsck")

    # -- the loss ----------------------------------------------------------------------------------

    def lose(self, loss: Loss) -> Counts:
        """Returns when all services have stopped and every deleter has looked."""
        change = {Loss.EMPTIED: self._empty, Loss.RESTORED: self._restore, Loss.REPLACED: self._replace}[loss]
        if loss is Loss.RESTORED:
            self.kafscale("backup", "create")
        self.write_on()
        self.deployment.etcd.kill()
        counts = Counts(loss, "s3" if self.on_s3 else "a directory", acknowledged=self.acknowledged())
        before = self._objects_at_rest()
        self._moved_away()
        change()
        self.deployment.start_etcd()
        until("all services know that etcd went back", self._all_stopped)
        looked = self._runs()
        until(
            "every job has tried again",
            lambda: all(now > looked[job] + 1 for job, now in self._runs().items()),
        )
        counts.objects, counts.deleted = len(before), len(before - self._objects())
        return counts

    def repair(self, loss: Loss) -> None:
        """As docs/backup.md says."""
        for service in self.deployment.services.values():
            service.kill()
        if loss is Loss.REPLACED:
            self.deployment.etcd.kill()
            shutil.rmtree(self.deployment.etcd.data_dir)
            self._lost.rename(self.deployment.etcd.data_dir)
            self.deployment.start_etcd()
        else:
            shutil.rmtree(self._lost)
            said = self.kafscale("fsck", "--roll-forward", "--yes")
            assert "GAP" not in said, said
            assert "clean: etcd and the object store agree" in said, said
        self.start_services()

    @property
    def _lost(self) -> Path:
        return self.folder / "lost-etcd"

    def _moved_away(self) -> None:
        self.deployment.etcd.data_dir.rename(self._lost)

    def _empty(self) -> None:
        self.deployment.etcd.data_dir.mkdir(mode=0o700)

    def _restore(self) -> None:
        snapshot = self.folder / "snapshot.db"
        snapshot.unlink(missing_ok=True)
        self.kafscale("backup", "get", str(snapshot))
        etcd = self.deployment.etcd
        restore_etcd(snapshot, etcd.data_dir, f"{etcd.name}={etcd.peer_url}")

    def _replace(self) -> None:
        """The other cluster has a topic of the same name."""
        etcd = self.deployment.etcd
        other = EtcdProcess(etcd.binary, etcd.data_dir, log_path=self.folder / "log" / "other-etcd.log")
        asyncio.run(_another_cluster(other))
        other.kill()

    # -- what can be seen --------------------------------------------------------------------------

    def _all_stopped(self) -> bool:
        return all(self._metric(role, f"kafscale_{role}_history_stopped") == 1 for role in STOPPING)

    def _runs(self) -> dict[str, float]:
        """A sweep that finds no bundle does not fail."""
        names = ("kafscale_upkeep_failures_total", "kafscale_upkeep_runs_total")
        return {
            job: sum(self._metric("upkeep", f'{name}{{task="{job}"}}') for name in names) for job in DELETING
        }

    def _metric(self, role: str, name: str) -> float:
        _, text = get(self.deployment.services[role].http, "/metrics")
        lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(f"{name} "))
        return next((float(value) for _, _, value in lines), 0.0)

    def _objects_at_rest(self) -> set[str]:
        """etcd is down, so nothing is verified any more; deletions that were on their way have ended."""
        last: list[set[str]] = [set()]

        def unchanged() -> bool:
            found = self._objects()
            same, last[0] = found == last[0], found
            return same

        until("no object comes or goes", unchanged, every_s=1.0)
        return last[0]

    def _objects(self) -> set[str]:
        """Without witnesses, of which old ones go."""
        return asyncio.run(_names(self.deployment.open_store))


def has_acknowledged(load: Load, wanted: int) -> bool:
    return load.acknowledged() >= wanted


async def _names(open_store: Callable[[], ObjectStore]) -> set[str]:
    store = open_store()
    try:
        listed = store.list(f"{KEYS.namespace}/")
        return {info.key async for info in listed if not info.key.startswith(history_prefix(KEYS))}
    finally:
        await store.close()


async def _another_cluster(server: EtcdProcess) -> None:
    await server.start()
    etcd = EtcdClient.connect([server.endpoint])
    try:
        await EtcdHistory(etcd, KEYS, MemoryStore()).verify()
        for topic in TOPICS:
            await create_topic(etcd, KEYS, topic, partitions=PARTITIONS)
    finally:
        await etcd.close()
