"""What faults are done to: three members of etcd, an S3 server behind a gate, several instances of each service.

Every process keeps its address and its node id when it starts again, so a client finds it as it would find a pod behind
its service. Start processes from the main thread only: the kernel ends them with the thread that has started them.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.ports import free_port
from kafscale.storage.objects import ObjectStore
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.etcd import EtcdCluster
from kafscale.testkit.seaweed import SeaweedServer

from e2e.harness.bundles import BUNDLES
from e2e.harness.deployment import ROLES, fsck_by_settings, s3_env
from e2e.harness.etcd_tools import restore_etcd, save_etcd
from e2e.harness.inside import Inside, leader_of
from e2e.harness.services import Service
from e2e.harness.store_gate import StoreGate

PARTITIONS: Final = 4
"""Of every topic that nobody gives a number."""
GRACE_MS: Final = 5_000
UPKEEP: Final = "upkeep"
SETTINGS: Final = {
    **BUNDLES,
    "KAFSCALE_NUM_PARTITIONS": str(PARTITIONS),
    "KAFSCALE_BUNDLE_GRACE_MS": str(GRACE_MS),
    "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "10000",
}
"""Records are settled and swept all the while, so that deleters run beside every fault."""

Name = tuple[str, int]
"""Role and node id."""


@dataclass(slots=True)
class Site:
    """`scale`: instances by role. Call `start` first and `kill` last."""

    folder: Path
    scale: Mapping[str, int]
    seed: int
    etcd: EtcdCluster = field(init=False)
    s3: SeaweedServer = field(init=False)
    gate: StoreGate = field(init=False)
    doors: dict[int, str] = field(init=False)
    services: dict[Name, Service] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.etcd = EtcdCluster(self.folder / "etcd")
        self.s3 = SeaweedServer(self.folder / "s3")
        self.doors = {node: f"127.0.0.1:{free_port()}" for node in range(1, self.scale["frontdoor"] + 1)}

    @property
    def bootstrap(self) -> str:
        return ",".join(self.doors.values())

    def inside(self) -> Inside:
        return Inside(",".join(self.etcd.endpoints))

    def open_store(self) -> ObjectStore:
        """Without the gate."""
        return S3Store(self.s3.s3_config())

    def names(self) -> list[Name]:
        return [(role, node) for role in (*ROLES, UPKEEP) for node in range(1, self.scale.get(role, 1) + 1)]

    @property
    def env(self) -> dict[str, str]:
        return {
            **s3_env(self.s3),
            **SETTINGS,
            "KAFSCALE_S3_ENDPOINT": self.gate.endpoint,
            "KAFSCALE_ETCD_ENDPOINTS": ",".join(self.etcd.endpoints),
        }

    # -- all of it ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when all instances are ready."""
        self.etcd.start()
        self.s3.start()
        self.s3.wait_ready()
        host, _, port = self.s3.endpoint.removeprefix("http://").partition(":")
        self.gate = self._open.enter_context(StoreGate(host, int(port), self.seed))
        self.start_services()

    def start_services(self) -> None:
        for name in self.names():
            self.start_service(name)
        for service in self.services.values():
            service.wait_ready()

    def kill(self) -> None:
        self.kill_services()
        self._open.close()
        self.etcd.kill()
        self.s3.kill()

    def kill_services(self) -> None:
        for service in self.services.values():
            service.kill()

    def fsck(self, *words: str) -> tuple[int, str]:
        """Exit code and words of `kafscale fsck`."""
        done = fsck_by_settings(self.env, ",".join(self.etcd.endpoints), *words)
        return done.returncode, done.stdout + done.stderr

    # -- parts of it -------------------------------------------------------------------------------

    def start_service(self, name: Name) -> None:
        role, node = name
        env = {**self.env, "KAFSCALE_NODE_ID": str(node)}
        if role == "frontdoor":
            env["KAFSCALE_LISTENERS"] = f"PLAINTEXT://{self.doors[node]}"
        if name in self.services:  # as a pod, at its old address
            env["KAFSCALE_HTTP_LISTEN"] = self.services[name].http
        self.services[name] = Service.start(role, env, self.folder / "log" / f"{role}-{node}.log")

    def start_member(self, member: EtcdProcess) -> None:
        if not member.is_running:
            member.launch()

    def leader(self) -> EtcdProcess:
        """The member of etcd that leads; any that runs, if none does."""
        running = [member for member in self.etcd.members if member.is_running]
        leader = leader_of([member.endpoint for member in running])
        return next((member for member in running if member.endpoint == leader), running[0])

    def start_s3(self) -> None:
        self.s3.start()
        self.s3.wait_ready()

    def met(self) -> dict[str, int]:
        """Requests that the gate held, doubled or refused, by what was done."""
        gate = self.gate
        done = {
            "held": gate.held.total(),
            "late": gate.late,
            "doubled": gate.doubled,
            "refused": gate.refused,
        }
        return {f"requests to the store {name}": count for name, count in done.items() if count}

    def signal_s3(self, number: signal.Signals) -> None:
        os.kill(self.s3.pid, number)

    # -- an etcd that goes back --------------------------------------------------------------------

    @property
    def _snapshot(self) -> Path:
        return self.folder / "snapshot.db"

    def keep_etcd(self) -> None:
        """Takes a snapshot."""
        self._snapshot.unlink(missing_ok=True)
        save_etcd(self.etcd.endpoints[0], self._snapshot)

    def return_etcd(self) -> None:
        """All members die, and begin again from the snapshot. No service is restarted."""
        self.etcd.kill()
        cluster = ",".join(f"{member.name}={member.peer_url}" for member in self.etcd.members)
        for member in self.etcd.members:
            shutil.rmtree(member.data_dir)
            restore_etcd(self._snapshot, member.data_dir, f"{member.name}={member.peer_url}", cluster)
        self.etcd.start()
