"""A run: a cluster, clients, faults for a while, and then the judgement."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafscale.storage.system import replaced
from kafscale.testkit.etcd_model.model import State
from kafscale.testkit.instances import InstanceLoop, SeededMachine

from tools.simulator.churn import Committer, churn
from tools.simulator.clients import TOPIC, Client, Producer, Reader, Records, create, judge
from tools.simulator.faults import Nemesis
from tools.simulator.logs import captured
from tools.simulator.lost_etcd import remember, restore
from tools.simulator.transactions.cast import Cast
from tools.simulator.world import ROLES, World

SETTLE_S: Final = 180.0
"""In which each client must have its answer, once no fault lasts any more."""
COLLECT_EVERY_S: Final = 60.0
COMMITTERS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    seconds: float
    instances: int = 2
    """Of each role."""
    partitions: int = 4
    producers: int = 4
    """Every second one is idempotent."""
    faults: bool = True
    restores: bool = False
    """At the end etcd is restored to an older snapshot."""
    log_level: int = logging.WARNING


def simulate(plan: Plan, say: Callable[[str], None]) -> list[str]:
    """The laws that were broken. The same plan says the same lines, in processes with the same PYTHONHASHSEED."""
    loop = InstanceLoop()
    asyncio.set_event_loop(loop)
    broken: list[str] = []
    gc.collect()
    gc.disable()  # it would run finalizers at moments that depend on the rest of the process
    try:
        with replaced(SeededMachine(loop, plan.seed)):
            world = World(loop, plan.seed, say)
            with captured(loop, world.note, plan.log_level, world.broken):
                broken = loop.run_until_complete(_story(world, plan))
    finally:
        gc.enable()
        asyncio.set_event_loop(None)
    return broken


async def _story(world: World, plan: Plan) -> list[str]:
    nodes = tuple(f"{role}-{number + 1}" for role in ROLES for number in range(plan.instances))
    await world.etcd.start()
    for node in nodes:
        world.boot(node)
    records = Records(last_answer_s=world.loop.time())
    collecting = asyncio.ensure_future(_collect())
    maker = _client(world, plan, "maker")
    await _as(world, "maker", create(maker, TOPIC, plan.partitions))
    cast = Cast(world, partial(_client, world, plan))
    await _as(world, "maker", cast.prepare(maker))
    running = [
        _as(world, f"producer-{number}", _producer(world, plan, records, number).run())
        for number in range(plan.producers)
    ] + [
        _as(
            world, f"reader-{number}", Reader(_client(world, plan, f"reader-{number}"), records, number).run()
        )
        for number in range(plan.partitions)
    ]
    running.append(_as(world, "churner", churn(_client(world, plan, "churner"), records)))
    running += [
        _as(
            world,
            f"committer-{number}",
            Committer(_client(world, plan, f"committer-{number}"), records).run(),
        )
        for number in range(COMMITTERS)
    ]
    running += [_as(world, name, part) for name, part in cast.parts()]
    nemesis = Nemesis(world, nodes, random.Random(f"nemesis {plan.seed}"))
    snapshots: list[State] = []
    remembering = asyncio.ensure_future(remember(world, plan.seconds * world.chance.random(), snapshots))
    if plan.faults:
        await nemesis.run(plan.seconds)
    else:
        await asyncio.sleep(plan.seconds)
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
        if len(records.history.acknowledged) and not records.values:
            records.broken.append("nothing was read")
        await _as(world, "maker", cast.judge(maker))
    records.broken += cast.book.broken
    remembering.cancel()
    if plan.restores and snapshots:
        records.broken += await restore(world, snapshots[0], partial(_write_more, world, plan))
    records.broken += world.broken
    collecting.cancel()
    for node in nodes:
        world.kill(node)
    world.note(f"** {cast.told()}")
    _tell(world, records, nemesis)
    return records.broken


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


def _producer(world: World, plan: Plan, records: Records, number: int) -> Producer:
    name = f"producer-{number}"
    return Producer(
        _client(world, plan, name),
        records,
        name,
        plan.partitions,
        is_idempotent=number % 2 == 0,
        pace_s=world.pace_s,
    )


async def _write_more(world: World, plan: Plan) -> None:
    """Records that nobody judges."""
    name = f"producer-{plan.producers}"
    await _as(world, name, _producer(world, plan, Records(), plan.producers).run())


def _tell(world: World, records: Records, nemesis: Nemesis) -> None:
    faults = {**nemesis.met, **{f"store {name}": count for name, count in world.store.met.items()}}
    world.note(
        f"** {len(records.history.sent)} records sent, {records.acknowledged} acknowledged, {records.read} read; "
        f"{records.unknown} requests without a known outcome; longest pause {records.longest_pause_s:.1f} s; "
        f"{sum(faults.values())} faults: {', '.join(f'{name} {count}' for name, count in sorted(faults.items()))}"
    )
    for law in records.broken:
        world.note(f"!! {law}")
