"""A cluster in simulated time: the services as they are, an etcd, an object store, and a network between them.

Each process is a node of the network with the name of its role and number, `produce-1`. A process that ends by itself,
or is killed, is started again by its supervisor after a while. Everything that happens is written down as lines, and
the same seed writes the same lines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

import grpc.aio
from kafscale.admin.server import build as build_admin
from kafscale.admin.settings import AdminSettings
from kafscale.coordinator.server import build as build_coordinator
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.fetch.server import build as build_fetch
from kafscale.fetch.settings import FetchSettings
from kafscale.frontdoor.server import BoundListener
from kafscale.frontdoor.server import build as build_frontdoor
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.produce.server import ProduceService
from kafscale.produce.settings import ProduceSettings
from kafscale.runtime.process import Build, Ports, Process
from kafscale.storage.membership.members import Listener
from kafscale.testkit.etcd_model.keepalive import KeepaliveTask
from kafscale.testkit.etcd_model.server import NODE as ETCD
from kafscale.testkit.etcd_model.server import EtcdServer
from kafscale.testkit.instances import BEGINS_S, Instance, InstanceLoop
from kafscale.testkit.memory_grpc.channel import open_channel
from kafscale.testkit.memory_grpc.network import Network
from kafscale.testkit.memory_grpc.server import open_server
from kafscale.testkit.memory_tcp import MemorySocket
from kafscale.upkeep.service import build as build_upkeep
from kafscale.upkeep.settings import UpkeepSettings

from tools.simulator.memory import astray, build_noted
from tools.simulator.store import StoreServer

FRONT_DOOR: Final = "frontdoor"
ROLES: Final = ("admin", "coordinator", "produce", "fetch", "upkeep", FRONT_DOOR)
KAFKA_PORT: Final = 9092
DELAY_S: Final = (0.0002, 0.003)
TURNS_MAX_S: Final = (0.0, 0.000_02, 0.000_2)
"""A seed has one of them: how long a turn of the loop takes at most. Messages take some turns from the network to what
they change, so others come between them only if turns take time."""
THREAD_S: Final = (0.0001, 0.002)
SLOW_THREAD_S: Final = (0.002, 0.1)
SLOW_THREADS: Final = 0.1
"""The share of the work for threads that takes long."""
LOOK_S: Final = 2.0
SUPERVISOR_S: Final = 1.0
NEVER_MS: Final = 1 << 40
"""The samples of lag ask DuckDB, which has threads of its own."""
SETTINGS: Final[dict[str, Any]] = {
    "admin": AdminSettings,
    "coordinator": CoordinatorSettings,
    "produce": ProduceSettings,
    "fetch": FetchSettings,
    "upkeep": UpkeepSettings,
    FRONT_DOOR: FrontdoorSettings,
}
BUILDS: Final[dict[str, Build[Any]]] = {
    "admin": build_admin,
    "coordinator": build_coordinator,
    "fetch": build_fetch,
    "upkeep": build_upkeep,
}


def nodes_of(instances: int) -> tuple[str, ...]:
    """The names of all processes."""
    return tuple(f"{role}-{number + 1}" for role in ROLES for number in range(instances))


def drawn_settings(chance: random.Random) -> dict[str, int]:
    """Of all services, so that a run of minutes meets what takes hours by default. The grace of bundles is longer than
    the store may delay a request."""
    return {
        "flush_interval_ms": chance.choice((20, 250)),
        "segment_bytes": chance.choice((16 << 10, 4 << 20)),
        "bundle_direct_bytes": chance.choice((1, 8 << 10, 1 << 20)),
        "settle_ms": chance.choice((2_000, 10_000, 60_000, 900_000)),
        "bundle_grace_ms": 120_000,
        "produce_timeout_min_ms": chance.choice((0, 5_000)),
        "produce_pipeline_max": chance.choice((1, 4, 16)),
        "cache_bytes": chance.choice((1 << 16, 128 << 20)),
        "memory_bytes": 64 << 20,
        "group_consumer_session_timeout_ms": chance.choice((6_000, 10_000)),
        "group_consumer_heartbeat_interval_ms": 1_500,
        "group_initial_rebalance_delay_ms": chance.choice((0, 3_000)),
        "settle_keep_bytes": chance.choice((0, 64 << 20)),
        "retention_every_ms": chance.choice((5_000, 30_000)),
        "retention_grace_ms": chance.choice((5_000, 60_000)),
        "compaction_every_ms": chance.choice((10_000, 60_000)),
        "compaction_grace_ms": chance.choice((5_000, 60_000)),
        "orphans_every_ms": chance.choice((15_000, 60_000)),
        "bundles_every_ms": chance.choice((15_000, 60_000)),
        "bundles_min_age_ms": chance.choice((30_000, 120_000)),
        "bundles_uncommitted_keep_ms": 180_000,
        "lag_every_ms": NEVER_MS,
    }


def _thread_s(chance: random.Random) -> float:
    return chance.uniform(*(SLOW_THREAD_S if chance.random() < SLOW_THREADS else THREAD_S))


@dataclass(eq=False)
class World:
    loop: InstanceLoop
    seed: int
    settings: Mapping[str, int]
    """Of all services."""
    say: Callable[[str], None]
    instances: dict[str, Instance] = field(default_factory=dict)
    """By node: the newest process."""
    running: dict[str, tuple[Process[Any], asyncio.Task[int]]] = field(default_factory=dict)
    skewed: set[str] = field(default_factory=set)
    """Nodes whose clock has been wrong."""
    services: dict[str, ProduceService] = field(default_factory=dict)
    """Of produce: their insides, by node."""
    slow: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By node: how long each message from and to it takes, in seconds, while its network is slow."""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    """Clients end what they do, and judge."""
    broken: list[str] = field(default_factory=list)
    """Laws that a process has broken."""

    def __post_init__(self) -> None:
        self._settings_of: dict[str, Any] = {}
        """By node: to read them takes longer than a second of its life."""
        self._astray: dict[str, None] = {}
        self._delays = random.Random(f"delays {self.seed}")
        self.network = self.loop.network = Network(self._delay_s, self._run_as)
        turns = random.Random(f"turns {self.seed}")
        if longest_s := turns.choice(TURNS_MAX_S):
            self.loop.turn_s = partial(turns.uniform, 0.0, longest_s)
        self.loop.thread_s = partial(_thread_s, random.Random(f"threads {self.seed}"))
        self.note(" ".join(f"{name}={value}" for name, value in self.settings.items()))
        self.etcd = EtcdServer(self.network)
        self.store = StoreServer(self.loop, self.network, random.Random(f"store {self.seed}"))

    def note(self, text: str) -> None:
        self.say(f"{self.loop.time() - BEGINS_S:10.3f} {text}")

    @property
    def stopping(self) -> bool:
        return self.stopped.is_set()

    # -- processes -------------------------------------------------------------------------------------

    def boot(self, node: str) -> None:
        """Starts a process of the role that the node's name says."""
        instance = self.instances[node] = Instance(node)
        self.loop.run_as(instance, partial(self._begin, instance))

    def client(self, node: str) -> Instance:
        """A node that is no service."""
        return self.instances.setdefault(node, Instance(node))

    def look_inside(self, node: str) -> None:
        """Whether a process of produce holds what it must not. Of each node the first breach is named."""
        service = self.services.get(node)
        if service is None or self.instances[node].is_killed or node in self._astray:
            return
        for what in astray(service):
            self._astray[node] = None
            self.broken.append(f"astray: {node}: {what}")

    async def look_inside_all(self) -> None:
        """Now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for node in self.services:
                self.look_inside(node)

    def kill(self, node: str) -> None:
        """Until somebody boots it: a supervisor that is about to do so leaves it alone."""
        self.look_inside(node)
        self.loop.kill(self.instances[node])
        self.instances[node] = Instance(node, is_killed=True)
        self.network.drop(node, "killed")

    def stop(self, node: str) -> None:
        """As SIGTERM does."""
        process, main = self.running[node]
        self.loop.run_as(self.instances[node], lambda: process.signalled(main))

    def pause(self, node: str) -> None:
        self.loop.pause(self.instances[node])

    def resume(self, node: str) -> None:
        self.loop.resume(self.instances[node])

    def _begin(self, instance: Instance) -> None:
        node = instance.name
        role = node.rpartition("-")[0]
        settings = self._settings_of.get(node)
        if settings is None:
            settings = self._settings_of[node] = self._read_settings(node, role)
        listeners: tuple[Listener, ...] = ()
        build = BUILDS.get(role)
        if role == "produce":
            build = partial(build_noted, note=partial(self.services.__setitem__, node))
        if build is None:
            listeners = (Listener(name="PLAINTEXT", host=node, port=KAFKA_PORT),)
            socket = cast(Any, MemorySocket(node, KAFKA_PORT))
            doors = (BoundListener(name="PLAINTEXT", host=node, socket=socket),)
            build = partial(build_frontdoor, doors=doors, tls={})
        process = Process(role, settings, build, listeners, log_ids={}, ports=self._ports(node))
        main = asyncio.get_running_loop().create_task(process.run(), name=node)
        self.running[node] = process, main
        main.add_done_callback(partial(self._ended, instance))

    def _read_settings(self, node: str, role: str) -> Any:
        return SETTINGS[role](
            etcd_endpoints=[f"http://{ETCD}:2379"],
            grpc_listen=f"{node}:0",
            http_listen=f"{node}:0",
            object_store="memory",
            **{name: value for name, value in self.settings.items() if name in SETTINGS[role].model_fields},
            **({"listeners": f"PLAINTEXT://{node}:{KAFKA_PORT}"} if role == FRONT_DOOR else {}),
        )

    def _ports(self, node: str) -> Ports:
        def dial(target: str, _options: object) -> grpc.aio.Channel:
            return open_channel(self.network, node, target)

        return Ports(
            connect_etcd=lambda _settings: self.etcd.client(node),
            open_store=lambda _settings, _use: self.store.of(node),
            grpc_server=lambda: open_server(self.network, node),
            dial=dial,
            keepalive=KeepaliveTask,
        )

    def _ended(self, instance: Instance, main: asyncio.Task[int]) -> None:
        """A supervisor starts it again."""
        why = "cancelled" if main.cancelled() else main.exception() or main.result()
        with self.loop.running(None):
            self.note(f"{instance.name} ended: {why!r}")
            if isinstance(why, BaseException):
                self.broken.append(f"failed: {instance.name}: {why!r}")
            self.loop.kill(instance)
            self.network.drop(instance.name, "ended")
            self.loop.call_later(SUPERVISOR_S, self._again, instance)

    def _again(self, ended: Instance) -> None:
        if self.instances[ended.name] is ended:
            self.boot(ended.name)

    # -- the network -----------------------------------------------------------------------------------

    def _delay_s(self, source: str, target: str) -> float:
        return self._delays.uniform(*(self.slow.get(source) or self.slow.get(target) or DELAY_S))

    def _run_as(self, node: str, deliver: Callable[[], None]) -> None:
        instance = self.instances.get(node)
        if instance is None:
            with self.loop.running(None):
                deliver()
        else:
            self.loop.run_as(instance, deliver)
