"""The five services started by hand on an etcd and a store of their own: what runs without `kafscale up`."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.etcd_program import find_etcd
from kafscale.runtime.ports import free_port
from kafscale.storage.objects import ObjectStore
from kafscale.storage.objects.directory import DirectoryStore
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.seaweed import SeaweedServer

from e2e.harness.cluster import KAFSCALE
from e2e.harness.inside import Inside
from e2e.harness.services import Service

ROLES = ("produce", "fetch", "coordinator", "admin", "frontdoor")


def s3_env(server: SeaweedServer) -> dict[str, str]:
    """Settings for the bucket of a test's S3 server."""
    config = server.s3_config()
    return {
        "KAFSCALE_OBJECT_STORE": "s3",
        "KAFSCALE_S3_BUCKET": config.bucket,
        "KAFSCALE_S3_REGION": config.region,
        "KAFSCALE_S3_ENDPOINT": server.endpoint,
        "KAFSCALE_S3_ACCESS_KEY_ID": config.access_key_id or "",
        "KAFSCALE_S3_SECRET_ACCESS_KEY": config.secret_access_key or "",
    }


def fsck_by_settings(env: dict[str, str], etcd: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`kafscale fsck` of whatever KAFSCALE_* names."""
    return subprocess.run(
        [*KAFSCALE, "fsck", *words],
        env={**os.environ, **env, "KAFSCALE_ETCD_ENDPOINTS": etcd},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@dataclass(slots=True)
class Deployment:
    """Nothing runs until it is started; etcd and the S3 server may come late, go and come back.

    `on_s3` False: objects are in the folder, and the S3 server is never started.
    """

    folder: Path
    partitions: int
    on_s3: bool = True
    etcd: EtcdProcess = field(init=False)
    s3: SeaweedServer = field(init=False)
    port: int = field(default_factory=free_port)
    services: dict[str, Service] = field(default_factory=dict)

    def __post_init__(self) -> None:
        binary = find_etcd(self.folder / "tools", print)
        self.etcd = EtcdProcess(binary, self.folder / "etcd", log_path=self.folder / "log" / "etcd.log")
        self.s3 = SeaweedServer(self.folder / "s3")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        return {
            **self._store_env(),
            "KAFSCALE_ETCD_ENDPOINTS": self.etcd.endpoint,
            "KAFSCALE_NUM_PARTITIONS": str(self.partitions),
            "KAFSCALE_LISTENERS": f"PLAINTEXT://{self.bootstrap}",
        }

    def _store_env(self) -> dict[str, str]:
        if self.on_s3:
            return s3_env(self.s3)
        return {"KAFSCALE_OBJECT_STORE": "dir", "KAFSCALE_OBJECT_DIR": str(self.folder / "objects")}

    def inside(self) -> Inside:
        return Inside(self.etcd.endpoint)

    def open_store(self) -> ObjectStore:
        return S3Store(self.s3.s3_config()) if self.on_s3 else DirectoryStore(self.folder / "objects")

    def start_services(
        self,
        env: Mapping[str, str] | None = None,
        launchers: Mapping[str, str] | None = None,
        roles: Sequence[str] = ROLES,
    ) -> None:
        """Starts them and waits for nothing. `launchers`: role to the module that starts it, if not its own."""
        for role in roles:
            log = self.folder / "log" / f"{role}.log"
            launcher = (launchers or {}).get(role)
            self.services[role] = Service.start(role, {**self.env, **(env or {})}, log, launcher)

    def start_etcd(self) -> None:
        asyncio.run(self.etcd.start())

    def start_s3(self) -> None:
        self.s3.start()
        self.s3.wait_ready()

    def wait_ready(self) -> None:
        for service in self.services.values():
            service.wait_ready()

    def fsck(self) -> subprocess.CompletedProcess[str]:
        return fsck_by_settings(self.env, self.etcd.endpoint)

    def kill(self) -> None:
        for service in self.services.values():
            service.kill()
        self.etcd.kill()
        self.s3.kill()
