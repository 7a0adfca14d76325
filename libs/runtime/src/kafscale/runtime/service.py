"""The input and output of every service's composition root: `Runtime` and `ServiceParts`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from kafscale.runtime.access import ProcessAccess, authorizer_of
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock, LoopWatch
from kafscale.runtime.grpc_identity import DialRole, dial_by
from kafscale.runtime.http import WorkerMetrics
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.shared_cache import SharedCache, open_shared_cache
from kafscale.runtime.stream.inbound import Handler
from kafscale.runtime.tracing import Tracer
from kafscale.runtime.transactions.serving import ServesEnds, ServesJoins
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.history.history import History
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Registration
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import TopicsView

S = TypeVar("S", bound=ServiceSettings)

TIDY: Final = frozenset({"admin", "upkeep"})
"""The roles that may delete old witnesses of etcd's history. Of a produce service the bucket's rights are narrow."""
READS_USERS: Final = frozenset({"frontdoor", "admin"})
"""The roles whose view of ACLs has users and quotas, too. No other process reads credentials."""


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
    watch: LoopWatch
    """Knows when this process was stopped."""
    tracer: Tracer | None = None
    dial: DialRole = field(default_factory=lambda: dial_by(None))
    """The way to other processes."""
    budget: MemoryBudget = field(init=False)
    access: ProcessAccess = field(init=False)
    """Has the view of ACLs, and of users and quotas if the role reads them."""
    _topics: TopicsView | None = field(default=None, init=False)
    _history: History | None = field(default=None, init=False)
    _authorization: Authorization | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.budget = MemoryBudget(self.settings.memory_bytes)
        acls_only = self.role not in READS_USERS
        self.access = ProcessAccess(self.etcd, self.keyspace, acls_only=acls_only, tasks=self.task_group)

    @property
    def topics(self) -> TopicsView:
        """The view of all topics, started in task_group at the first use. Await its ready()."""
        if self._topics is None:
            self._topics = TopicsView(self.etcd, self.keyspace)
            self.task_group.create_task(self._topics.run())
        return self._topics

    @property
    def history(self) -> History:
        """Of etcd, started in task_group at the first use. Await its judged() before the first request."""
        if self._history is None:
            self._history = history = History(
                self.etcd,
                self.keyspace,
                self.store,
                wall_ms=self.clock.wall_ms,
                tidies=self.role in TIDY,
            )
            self.metrics.watch("history_stopped", lambda: history.stopped is not None)
            self.task_group.create_task(history.run(), name="history")
        return self._history

    @property
    def authorization(self) -> Authorization:
        """What the handlers of this process ask. The process closes it when the service has ended."""
        if self._authorization is None:
            self.access.watch(self.metrics)
            authorizer = authorizer_of(self.settings, self.access)
            grants = self.settings.log_level == "debug"
            self._authorization = Authorization(authorizer, self.metrics, grants=grants)
        return self._authorization

    async def access_ready(self) -> None:
        """Returns when the service can decide: at once, if it asks no authorizer."""
        if self._authorization is not None and self._authorization.authorizer is not None:
            await self.access.view.ready()

    def close(self) -> None:
        if self._authorization is not None:
            self._authorization.close()

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

    peers: handlers of requests that processes of one role send each other, by numbers that are no API keys.
    before_ready is awaited when requests may already come; the process is READY when it returns.
    drain is awaited after the state DRAINING is published, while requests still come: it hands over
    what the service holds, and returns when it has. worker_metrics: /metrics of worker processes.
    announce_after_s: how long after READY a front door is announced to clients.
    joins, ends: the calls of transactions that other services may make to this one (docs/protocol/transactions.md).
    """

    bulk: Mapping[int, Handler] = field(default_factory=dict)
    control: Mapping[int, Handler] = field(default_factory=dict)
    peers: Mapping[int, Handler] = field(default_factory=dict)
    before_ready: Callable[[], Awaitable[None]] = _nothing
    drain: Callable[[], Awaitable[None]] = _nothing
    worker_metrics: WorkerMetrics | None = None
    announce_after_s: float = 0
    joins: ServesJoins | None = None
    ends: ServesEnds | None = None
