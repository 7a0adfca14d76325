"""What `kafscale up` runs. This module imports nothing heavy, because every command line imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafscale.access.protocol import SecurityProtocol
from kafscale.operations.services import ROLES, UPKEEP
from kafscale.operations.target import StoreKind
from kafscale.runtime.addresses import join_address
from kafscale.runtime.etcd_binary import QUOTA_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class UpPlan:
    data_dir: Path
    in_memory: bool = False
    """In a temporary directory instead of `data_dir`; it is removed at exit."""
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str | None = None
    namespace: str = "default"
    store: StoreKind = StoreKind.DIR
    scale: Mapping[str, int] = field(default_factory=dict)
    upkeep: bool = True
    etcd_quota_bytes: int = QUOTA_BYTES
    internal_tls: bool = False
    console_port: int | None = None
    """None: without the web console."""
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    """Of the listener for clients. Its certificate, users and ACLs are settings, which the services inherit."""

    @property
    def bootstrap(self) -> str:
        return join_address(self.advertised_host or self.host, self.port)

    def instances(self) -> list[tuple[str, int]]:
        """(role, node id) of every process, in the order in which they start."""
        roles = [role for role in ROLES if role != UPKEEP or self.upkeep]
        return [(role, node_id) for role in roles for node_id in range(1, self.scale.get(role, 1) + 1)]

    def programs(self) -> list[str]:
        return [service_program(role) for role in dict(self.instances())]


def service_program(role: str) -> str:
    """The module of a service whose `main()` runs it."""
    return f"kafscale.{role}.__main__"
