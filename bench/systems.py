"""The measured systems: each can start, report its address, restart and stop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kafscale.runtime.ports import free_port
from kafscale.testkit.seaweed import SeaweedServer

from bench.results import CPU_PARTS, ROLES, Line
from bench.tools import s3_server
from e2e.harness.apache import ApacheKafka
from e2e.harness.cluster import Cluster, family
from e2e.harness.inside import metric
from e2e.harness.versions import checked_out, version_env

NO_BUDGET = {"KAFSCALE_BUNDLES_PER_S": "100000"}
"""SeaweedFS bills no PUT. So bundles do not wait for a budget, as on a directory."""
STOP_TIMEOUT_S: Final = 180.0
"""Six roles stop one after another, each in up to 30 s: thousands of partitions are handed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """Of the produce service, since it started. A flush is one slice or segment of one partition."""

    records: float
    flushes: float


class System(Protocol):
    @property
    def bootstrap(self) -> str: ...
    @property
    def lines(self) -> Container[Line]:
        """The lines that it has."""
        ...

    def start(self) -> None: ...
    def restart(self) -> float:
        """Stops and starts; seconds until a client is answered."""
        ...

    def stop(self) -> None: ...
    def memory(self) -> Mapping[str, int]:
        """Resident bytes by process."""
        ...

    def processes(self) -> Mapping[str, Sequence[int]]:
        """The ids of all its processes by part, a parent before its children."""
        ...

    def flushed(self) -> Flushed | None:
        """None if it does not count its flushes."""
        ...


@dataclass(slots=True)
class KafScale:
    """`kafscale up` on a directory, or on an S3 server with or without added latency."""

    cluster: Cluster
    seaweed: SeaweedServer | None = None
    proxy: subprocess.Popen[bytes] | None = None
    counts: Path | None = None
    """Where the proxy writes how many requests it has seen."""

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def lines(self) -> Container[Line]:
        return frozenset(Line)

    def start(self) -> None:
        self.cluster.start()

    def restart(self) -> float:
        return self.cluster.restart()

    def stop(self) -> None:
        self.cluster.stop(STOP_TIMEOUT_S)
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.wait()
        if self.seaweed is not None:
            self.seaweed.kill()

    def memory(self) -> Mapping[str, int]:
        return {role: sum(resident(pid) for pid in self.cluster.pids(role)) for role in ROLES}

    def processes(self) -> Mapping[str, Sequence[int]]:
        """By CPU_PARTS. The proxy that adds latency is not part of the system."""
        roles = [part for part in CPU_PARTS if part in ROLES]
        found: dict[str, Sequence[int]] = {
            role: [each for pid in self.cluster.pids(role) for each in family(pid)] for role in roles
        }
        named = {pid for pids in found.values() for pid in pids}
        others = [pid for pid in self.cluster.tree() if pid not in named]
        store = family(self.seaweed.pid) if self.seaweed is not None else []
        return {**found, "others": others, "store": store}

    def flushed(self) -> Flushed | None:
        addresses = [each.http_address for each in self.cluster.inside().instances("produce")]

        def count(name: str) -> float:
            return sum(sum(metric(each, f"kafscale_produce_{name}_total").values()) for each in addresses)

        return Flushed(records=count("records"), flushes=count("flushes"))


def resident(pid: int) -> int:
    """The resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def on_directory(folder: Path, **env: str) -> KafScale:
    return KafScale(Cluster(data_dir=folder, env=env))


def on_s3(folder: Path, *, far: bool = False) -> KafScale:
    seaweed = s3_server(folder / "weed")
    config = seaweed.s3_config()
    endpoint, proxy, counts = seaweed.endpoint, None, folder / "requests.json"
    if far:
        port = free_port()
        proxy = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.slow_s3",
                str(port),
                "127.0.0.1",
                seaweed.endpoint.rsplit(":", 1)[1],
                str(counts),
            ]
        )
        endpoint = f"http://127.0.0.1:{port}"
    env = {
        "KAFSCALE_S3_ENDPOINT": endpoint,
        "KAFSCALE_S3_BUCKET": config.bucket,
        "KAFSCALE_S3_ACCESS_KEY_ID": config.access_key_id or "",
        "KAFSCALE_S3_SECRET_ACCESS_KEY": config.secret_access_key or "",
        **NO_BUDGET,
    }
    cluster = Cluster(data_dir=folder / "data", env=env, options=("--store", "s3"))
    return KafScale(cluster, seaweed, proxy, counts if far else None)


@dataclass(slots=True)
class Kafka:
    kafka: ApacheKafka

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap

    @property
    def lines(self) -> Container[Line]:
        return frozenset(Line) - {Line.MEMORY}

    def start(self) -> None:
        self.kafka.start()

    def restart(self) -> float:
        return self.kafka.restart()

    def stop(self) -> None:
        self.kafka.stop()

    def memory(self) -> Mapping[str, int]:
        return {}

    def processes(self) -> Mapping[str, Sequence[int]]:
        return {"broker": family(self.kafka.pid)}

    def flushed(self) -> Flushed | None:
        return None


SYSTEMS: Mapping[str, Callable[[Path], System]] = {
    "kafscale-dir": on_directory,
    "kafka-flush": lambda folder: Kafka(ApacheKafka(folder, flush_before_ack=True, jvm=())),
    "kafka": lambda folder: Kafka(ApacheKafka(folder, flush_before_ack=False, jvm=())),
    "kafscale-s3": on_s3,
    "kafscale-s3-far": lambda folder: on_s3(folder, far=True),
}
"""A whole run measures these."""


BY_NAME: Mapping[str, Callable[[Path], System]] = {
    "kafscale-dir-internal-tls": lambda folder: on_directory(folder, KAFSCALE_INTERNAL_TLS="1"),
    "kafscale-dir-acl": lambda folder: on_directory(
        folder, KAFSCALE_AUTHORIZER="acl", KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND="true"
    ),
}
"""They run only if they are named: what security costs."""


def system_named(name: str, folder: Path) -> System:
    """One of SYSTEMS or BY_NAME. `kafscale-dir@1a2b3c4`: KafScale as of that commit, in the environment of this one."""
    kind, _, revision = name.partition("@")
    system = {**SYSTEMS, **BY_NAME}[kind](folder)
    if revision:
        if not isinstance(system, KafScale):
            raise ValueError(f"{name}: only KafScale has commits in this repository")
        system.cluster.env = {**system.cluster.env, **version_env(checked_out(revision))}
    return system


def emptied(directory: Path) -> None:
    """Frees the space of its files, and no inode. The next system does not find the disk at work on it."""
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.truncate(path, 0)
    os.sync()
