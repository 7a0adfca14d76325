"""One way for every service to be a process: wait for what it needs, register, serve, drain, leave.

waiting for etcd and the store -> STARTING -> READY -> DRAINING -> gone
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import grpc.aio
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.malloc import MALLOC_ENV
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.stream.server import Handler
from kafscale.storage.etcd import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership import Registration
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import TopicsView
from prometheus_client import CollectorRegistry

__all__ = ["MALLOC_ENV", "Runtime", "ServiceParts", "run_service"]

S = TypeVar("S", bound=ServiceSettings)


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime(Generic[S]):
    """What a service gets. Registered as STARTING before build is called: registration.instance is known."""

    role: str
    settings: S
    etcd: EtcdClient
    keyspace: Keyspace
    store: ObjectStore
    registration: Registration
    registry: CollectorRegistry
    task_group: asyncio.TaskGroup
    clock: Clock
    budget: MemoryBudget

    @property
    def topics(self) -> TopicsView:
        """Started in task_group at the first use; await its ready()."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """What a service gives: handlers by API key, gRPC services, and its ways to begin and to end."""

    bulk: Mapping[int, Handler] = field(default_factory=dict)
    control: Mapping[int, Handler] = field(default_factory=dict)
    grpc_services: Sequence[Callable[[grpc.aio.Server], None]] = ()
    before_ready: Callable[[], Awaitable[None]] = _nothing
    drain: Callable[[], Awaitable[None]] = _nothing


def run_service(
    role: str, settings: S, build: Callable[[Runtime[S]], AbstractAsyncContextManager[ServiceParts]]
) -> int:
    """Runs until SIGTERM or SIGINT; the exit code."""
    raise NotImplementedError
