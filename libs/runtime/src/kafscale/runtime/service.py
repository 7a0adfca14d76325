"""The input and output of every service's composition root: `Runtime` and `ServiceParts`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.grpc_identity import GrpcIdentity
from kafscale.runtime.http import WorkerMetrics
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.shared_cache import SharedCache, open_shared_cache
from kafscale.runtime.stream.inbound import Handler
from kafscale.runtime.tracing import Tracer
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Registration
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import TopicsView

S = TypeVar("S", bound=ServiceSettings)


@dataclass(kw_only=True)
class Runtime(Generic[S]):
    """What the process gives to a service. It is registered as STARTING, so registration.instance is known.

    Tasks of task_group are cancelled when the process leaves; a task that fails ends the process.
    """

    role: str
    settings: S
    etcd: EtcdClient
    keyspace: Keyspace
    store: ObjectStore
    registration: Registration
    metrics: Metrics
    task_group: asyncio.TaskGroup
    clock: Clock
    tracer: Tracer | None = None
    identity: GrpcIdentity | None = None
    """The certificate of this process for the others; None: they talk without TLS."""
    budget: MemoryBudget = field(init=False)
    _topics: TopicsView | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.budget = MemoryBudget(self.settings.memory_bytes)

    @property
    def topics(self) -> TopicsView:
        """The view of all topics, started in task_group at the first use. Await its ready()."""
        if self._topics is None:
            self._topics = TopicsView(self.etcd, self.keyspace)
            self.task_group.create_task(self._topics.run())
        return self._topics

    def open_shared_cache(self) -> SharedCache | None:
        """The shared cache, or None if the settings name none. Call it once per process. Raises CacheUnusable."""
        return open_shared_cache(
            self.settings,
            clock=self.clock,
            budget=self.budget,
            metrics=self.metrics,
            tasks=self.task_group,
        )


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """Handlers by API key, and the service's ways to begin and to end.

    before_ready is awaited when requests may already come; the process is READY when it returns.
    drain is awaited after the state DRAINING is published, while requests still come: it hands over
    what the service holds, and returns when it has. worker_metrics: /metrics of worker processes.
    """

    bulk: Mapping[int, Handler] = field(default_factory=dict)
    control: Mapping[int, Handler] = field(default_factory=dict)
    before_ready: Callable[[], Awaitable[None]] = _nothing
    drain: Callable[[], Awaitable[None]] = _nothing
    worker_metrics: WorkerMetrics | None = None
