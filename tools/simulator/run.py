"""A run: a cluster, clients, faults for a while, and then the judgement."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafscale.storage.system import replaced
from kafscale.testkit.etcd_model.model import State
from kafscale.testkit.instances import InstanceLoop, SeededMachine

from tools.simulator.churn import Committer, churn
from tools.simulator.clients import TOPIC, Client, Producer, Reader, Records, create, judge
from tools.simulator.expiry import COMPACTED, EXPIRING, Shortened
from tools.simulator.faults import Nemesis
from tools.simulator.lasting import Lasting
from tools.simulator.logs import captured
from tools.simulator.lost_etcd import remember, restore
from tools.simulator.memory import left_over
from tools.simulator.plan import Plan
from tools.simulator.world import BEGINS_S, World, nodes_of

SETTLE_S: Final = 180.0
"""In which each client must have its answer, once no fault lasts any more."""
REQUEST_S: Final = 30.0
"""No request is held for longer."""
COLLECT_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    broken: list[str]
    """The laws that were broken, and how."""
    simulated_s: float = 0.0
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
    try:
        with replaced(SeededMachine(loop, plan.seed)):
            world = World(loop, plan.seed, plan.settings, say)
            with captured(loop, world.note, log_level, world.broken):
                return loop.run_until_complete(_story(world, plan))
    finally:
        gc.enable()
        asyncio.set_event_loop(None)


async def _story(world: World, plan: Plan) -> Outcome:
    nodes = nodes_of(plan.instances)
    await world.etcd.start()
    for node in nodes:
        world.boot(node)
    records = Records(last_answer_s=world.loop.time())
    watching = [asyncio.ensure_future(each) for each in (_collect(), world.look_inside_all())]
    maker = _client(world, plan, "maker")
    await _as(world, "maker", create(maker, TOPIC, plan.partitions))
    running = [
        _as(world, name, CLIENTS[kind].begin(world, plan, records, name))
        for kind, name in client_names()
        if name not in plan.without
    ]
    nemesis = Nemesis(world)
    snapshots: list[State] = []
    if plan.snapshot_s is not None:
        running.append(asyncio.ensure_future(remember(world, plan.snapshot_s, snapshots)))
    await nemesis.run(plan.faults, plan.seconds)
    lasting = Lasting(
        world,
        records,
        plan.partitions,
        plan.instances,
        random.Random(f"lasting {plan.seed}"),
        lambda name, work: running.append(_as(world, name, work(_client(world, plan, name)))),
    )
    if plan.lasting:
        await lasting.run(plan.lasting, plan.lasting_s)
    world.note("** no more faults")
    world.stopping = True
    _, late = await asyncio.wait(running, timeout=SETTLE_S)
    records.broken += [f"stuck: {task.get_name()} has no answer" for task in late]
    records.broken += [
        f"failed: {task.get_name()}: {task.exception()!r}"
        for task in running
        if task.done() and task.exception() is not None
    ]
    if not late:
        await _as(world, "maker", judge(maker, records, plan.partitions))
        await _as(world, "maker", lasting.judge(maker))
        records.broken += await _left_over(world)
        if len(records.history.acknowledged) and not records.values:
            records.broken.append("nothing was read")
    if plan.empties:
        snapshots = [State()]
    if snapshots:
        records.broken += await restore(world, snapshots[0], partial(_write_more, world, plan))
    records.broken += world.broken
    for task in watching:
        task.cancel()
    for node in nodes:
        world.kill(node)
    return _outcome(world, records, nemesis.met)


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
    while True:
        await asyncio.sleep(COLLECT_EVERY_S)
        gc.collect()


def _as(world: World, node: str, work: object) -> asyncio.Task[None]:
    with world.loop.running(world.client(node)):
        return asyncio.ensure_future(_named(node, work))


async def _named(node: str, work: object) -> None:
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    task.set_name(node)
    await work  # type: ignore[misc]


def _client(world: World, plan: Plan, name: str) -> Client:
    return Client(world, name, plan.instances, random.Random(f"{name} {plan.seed}"))


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _producer(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    """Every second one is idempotent."""
    client = _client(world, plan, name)
    return Producer(
        client, records, name, plan.partitions, is_idempotent=_number(name) % 2 == 0, pace_s=plan.pace_s
    ).run()


def _reader(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    return Reader(_client(world, plan, name), records, _number(name) % plan.partitions).run()


def _churner(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    return churn(_client(world, plan, name), records)


def _committer(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    return Committer(_client(world, plan, name), records).run()


@dataclass(frozen=True, slots=True)
class Clients:
    """Of one kind. `begin` returns what one of them does until the world stops, with what it judges then."""

    count: int
    begin: Callable[[World, Plan, Records, str], Awaitable[None]]


def _shortened(world: World, plan: Plan, records: Records, name: str) -> Awaitable[None]:
    topic = (EXPIRING, COMPACTED)[_number(name)]
    return Shortened(_client(world, plan, name), records, topic, plan.pace_s).run()


CLIENTS: Final = {
    "producer": Clients(4, _producer),
    "reader": Clients(4, _reader),
    "churner": Clients(1, _churner),
    "committer": Clients(3, _committer),
    "shortened": Clients(2, _shortened),
}


def client_names() -> list[tuple[str, str]]:
    """Kind and name of each."""
    return [
        (kind, f"{kind}-{number}") for kind, clients in CLIENTS.items() for number in range(clients.count)
    ]


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
    outcome = Outcome(records.broken, world.loop.time() - BEGINS_S, counts, dict(sorted(faults.items())))
    told = ", ".join(f"{count} {name}" for name, count in outcome.counts.items())
    kinds = ", ".join(f"{name} {count}" for name, count in outcome.faults.items())
    world.note(
        f"** {told}; longest pause {records.longest_pause_s:.1f} s; {sum(outcome.faults.values())} faults: {kinds}"
    )
    for law in records.broken:
        world.note(f"!! {law}")
    return outcome
