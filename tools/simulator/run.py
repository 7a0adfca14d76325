"""A run: a cluster, clients, faults for a while, and then the judgement."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import Final

from kafscale.storage.system import replaced
from kafscale.testkit.etcd_model.model import State
from kafscale.testkit.instances import BEGINS_S, InstanceLoop, SeededMachine

from tools.simulator.churn import Committer, churn
from tools.simulator.clients import TOPIC, Client, Producer, Reader, Records, create, judge
from tools.simulator.expiry import COMPACTED, EXPIRING, Shortened
from tools.simulator.faults import Nemesis
from tools.simulator.groups.cast import NAMES as GROUP_CLIENTS
from tools.simulator.groups.cast import Groups
from tools.simulator.lasting import Lasting
from tools.simulator.logs import captured
from tools.simulator.lost_etcd import remember, restore
from tools.simulator.memory import left_over
from tools.simulator.order import Orderly
from tools.simulator.plan import Plan
from tools.simulator.transactions import cast
from tools.simulator.world import World, nodes_of

SETTLE_S: Final = 180.0
"""In which each client must have its answer, once no fault lasts any more."""
MARGIN_S: Final = 10.0
"""By which a group says earlier what it waits for."""
REQUEST_S: Final = 30.0
"""No request is held for longer."""
COLLECT_EVERY_S: Final = 60.0
COLLECT_ALL_EVERY: Final = 15


@dataclass(frozen=True, slots=True)
class Outcome:
    broken: list[str]
    """The laws that were broken, and how."""
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    """Of the process, from its start."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What clients did."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """By kind."""


def simulate(plan: Plan, say: Callable[[str], None], log_level: int = logging.WARNING) -> Outcome:
    """The same plan says the same lines, in processes with the same PYTHONHASHSEED."""
    loop = InstanceLoop()
    asyncio.set_event_loop(loop)
    gc.collect()
    gc.disable()  # it would run finalizers at moments that depend on the rest of the process
    gc.freeze()  # what was imported is not looked at again
    try:
        with replaced(SeededMachine(loop, plan.seed)):
            world = World(loop, plan.seed, plan.settings, say)
            with captured(loop, world.note, log_level, world.broken):
                return loop.run_until_complete(_Story(world, plan).tell())
    finally:
        gc.unfreeze()
        gc.enable()
        asyncio.set_event_loop(None)


@dataclass(eq=False)
class _Story:
    """A run from its first process to its judgement."""

    world: World
    plan: Plan
    records: Records = field(init=False)
    running: list[asyncio.Task[None]] = field(default_factory=list)
    """Clients that go on until the world stops."""
    writers: list[asyncio.Task[None]] = field(default_factory=list)
    """Those of them that write to TOPIC."""
    snapshots: list[State] = field(default_factory=list)

    def __post_init__(self) -> None:
        world, plan = self.world, self.plan
        client = partial(_client, world, plan)
        self.records = Records(last_answer_s=world.loop.time())
        self.nemesis = Nemesis(world)
        self.maker = client("maker")
        self.actors = cast.Cast(world, plan.pace_s, client)
        self.groups = Groups(world, self.records, plan.partitions, client)
        self.lasting = Lasting(
            world,
            self.records,
            plan.partitions,
            plan.instances,
            random.Random(f"lasting {plan.seed}"),
            lambda name, work: self.writers.append(self._run(name, work(client(name)))),
        )

    async def tell(self) -> Outcome:
        world, plan = self.world, self.plan
        nodes = nodes_of(plan.instances)
        await world.etcd.start()
        for node in nodes:
            world.boot(node)
        watching = [asyncio.ensure_future(each) for each in (_collect(), world.look_inside_all())]
        await self._begin()
        await self.nemesis.run(plan.faults, plan.seconds)
        if plan.lasting:
            await self.lasting.run(plan.lasting, plan.lasting_s)
        await self._end()
        for task in watching:
            task.cancel()
        for node in nodes:
            world.kill(node)
        return _outcome(world, self.records, self.nemesis.met)

    def _run(self, name: str, work: object) -> asyncio.Task[None]:
        task = _as(self.world, name, work)
        self.running.append(task)
        return task

    async def _begin(self) -> None:
        world, plan = self.world, self.plan
        configs = {"compression.type": plan.compression}
        await _as(world, "maker", create(self.maker, TOPIC, plan.partitions, configs=configs))
        await _as(world, "maker", self.actors.prepare(self.maker))
        without = left_out(plan)
        for kind, name in client_names():
            if kind in CLIENTS and name not in without:
                task = self._run(name, CLIENTS[kind].begin(world, plan, self.records, name))
                self.writers += [task] * (kind == "producer")
        for name, part in self.groups.parts(without, self.writers, SETTLE_S - MARGIN_S):
            self._run(name, part)
        for name, part in self.actors.parts(without):
            self._run(name, part)
        if plan.snapshot_s is not None:
            self._run("snapshot", remember(world, plan.snapshot_s, self.snapshots))

    async def _end(self) -> None:
        world, records = self.world, self.records
        world.note("** no more faults")
        world.stopped.set()
        _, late = await asyncio.wait(self.running, timeout=SETTLE_S) if self.running else ((), ())
        records.broken += [f"stuck: {task.get_name()} has no answer" for task in late]
        records.broken += [
            f"failed: {task.get_name()}: {task.exception()!r}"
            for task in self.running
            if task.done() and task.exception() is not None
        ]
        if not late:
            await self._judge()
        snapshots = [State()] if self.plan.empties else self.snapshots
        if snapshots:
            records.broken += await restore(world, snapshots[0], partial(_write_more, world, self.plan))
        records.broken += self.actors.book.broken + world.broken + self.groups.broken()
        records.counts |= self.actors.book.counts() | self.groups.counts()

    async def _judge(self) -> None:
        world, records, maker = self.world, self.records, self.maker
        await _as(world, "maker", judge(maker, records, self.plan.partitions))
        await _as(world, "maker", self.lasting.judge(maker))
        await _as(world, "maker", self.actors.judge(maker))
        if records.history.acknowledged and not records.values:
            records.broken.append("nothing was read")
        records.broken += await _left_over(world)


async def _left_over(world: World) -> list[str]:
    """What is held when nothing is under way: requests whose clients are gone are held until their deadlines."""
    end_s, found = world.loop.time() + REQUEST_S, [""]
    while found:
        found = [
            f"left over: {node}: {each}"
            for node, service in world.services.items()
            for each in left_over(service)
        ]
        if world.loop.time() > end_s:
            break
        await asyncio.sleep(1)
    return found


async def _collect() -> None:
    """What survives once is looked at again only now and then: there is more and more of it."""
    for number in itertools.count(1):
        await asyncio.sleep(COLLECT_EVERY_S)
        if number % COLLECT_ALL_EVERY == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()


def _as(world: World, node: str, work: object) -> asyncio.Task[None]:
    with world.loop.running(world.client(node)):
        return asyncio.ensure_future(_named(node, work))


async def _named(node: str, work: object) -> None:
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    task.set_name(node)
    await work  # type: ignore[misc]


def _client(world: World, plan: Plan, name: str) -> Client:
    return Client(world, name, plan.instances, random.Random(f"{name} {plan.seed}"), plan.pace_s)


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _producer(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    """Every second one is idempotent."""
    client = _client(world, plan, name)
    return Producer(client, records, name, plan.partitions, is_idempotent=_number(name) % 2 == 0).run()


def _reader(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    return Reader(_client(world, plan, name), records, _number(name) % plan.partitions).run()


def _churner(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    return churn(_client(world, plan, name), records)


def _committer(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    return Committer(_client(world, plan, name), records).run()


def _orderly(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    return Orderly(_client(world, plan, name), records).run()


@dataclass(frozen=True, slots=True)
class Clients:
    """Of one kind. `begin` returns what one of them does until the world stops, with what it judges then."""

    count: int
    begin: Callable[[World, Plan, Records, str], Awaitable[None]]


def _shortened(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    topic = (EXPIRING, COMPACTED)[_number(name)]
    return Shortened(_client(world, plan, name), records, topic).run()


CLIENTS: Final = {
    "producer": Clients(4, _producer),
    "reader": Clients(4, _reader),
    "churner": Clients(1, _churner),
    "committer": Clients(3, _committer),
    "shortened": Clients(2, _shortened),
    "orderly": Clients(1, _orderly),
}


def client_names() -> list[tuple[str, str]]:
    """Kind and name of each."""
    found = [
        (kind, f"{kind}-{number}") for kind, clients in CLIENTS.items() for number in range(clients.count)
    ]
    found += [("group", name) for name in GROUP_CLIENTS]
    return found + [(cast.KIND, name) for name in cast.NAMES]


def left_out(plan: Plan) -> tuple[str, ...]:
    """The names of clients that do not run."""
    return tuple(name for kind, name in client_names() if kind in plan.without or name in plan.without)


async def _write_more(world: World, plan: Plan) -> None:
    """Records that nobody judges."""
    name = f"producer-{CLIENTS['producer'].count}"
    await _as(world, name, _producer(world, plan, Records(), name))


def _outcome(world: World, records: Records, met: Counter[str]) -> Outcome:
    counts = {
        "records sent": len(records.history.sent),
        "acknowledged": records.acknowledged,
        "read": records.read,
        "requests without a known outcome": records.unknown,
        **records.counts,
    }
    faults = {**met, **{f"store {name}": count for name, count in world.store.met.items()}}
    outcome = Outcome(
        records.broken, world.loop.time() - BEGINS_S, process_time(), counts, dict(sorted(faults.items()))
    )
    told = ", ".join(f"{count} {name}" for name, count in outcome.counts.items())
    kinds = ", ".join(f"{name} {count}" for name, count in outcome.faults.items())
    world.note(
        f"** {told}; longest pause {records.longest_pause_s:.1f} s; {sum(outcome.faults.values())} faults: {kinds}"
    )
    for law in records.broken:
        world.note(f"!! {law}")
    return outcome
