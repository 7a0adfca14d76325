"""Several instances of each service on one etcd and one S3, each of them ours to end and to start again.

`env` counts when an instance starts. So a scenario that changes it between restarts changes the settings, or the
version, of one instance after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafscale.runtime.ports import free_port
from kafscale.storage.objects import ObjectStore

from e2e.harness.deployment import ROLES, Deployment
from e2e.harness.inside import Inside
from e2e.harness.services import Service

NODES = (1, 2)


@dataclass(slots=True)
class Fleet:
    """Instances are named by role and node id; every front door has a fixed address."""

    folder: Path
    partitions: int
    env: Mapping[str, str] = field(default_factory=dict)
    roles: Sequence[str] = ROLES
    outside: Deployment = field(init=False)
    services: dict[tuple[str, int], Service] = field(default_factory=dict)
    doors: dict[int, str] = field(
        default_factory=lambda: {node: f"127.0.0.1:{free_port()}" for node in NODES}
    )

    def __post_init__(self) -> None:
        self.outside = Deployment(self.folder, self.partitions)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.doors.values())

    def inside(self) -> Inside:
        return self.outside.inside()

    def open_store(self) -> ObjectStore:
        return self.outside.open_store()

    def start(self) -> None:
        """Returns when all instances are ready."""
        self.outside.start_etcd()
        self.outside.start_s3()
        for role in self.roles:
            for node in NODES:
                self._start(role, node)
        for service in self.services.values():
            service.wait_ready()

    def _start(self, role: str, node: int) -> None:
        env = {
            **self.outside.env,
            **self.env,
            "KAFSCALE_NODE_ID": str(node),
            "KAFSCALE_LISTENERS": f"PLAINTEXT://{self.doors[node]}",
        }
        self.services[role, node] = Service.start(role, env, self.folder / "log" / f"{role}-{node}.log")

    def restart(self, role: str, node: int) -> None:
        """SIGTERM, and the same again with the `env` of now; it is ready when this returns."""
        leaving = self.services[role, node]
        code = leaving.stop()
        assert code == 0, f"{role}-{node} ended with code {code}:\n{leaving.story()}"
        self._start(role, node)
        self.services[role, node].wait_ready()

    def kill(self) -> None:
        for service in self.services.values():
            service.kill()
        self.outside.kill()
