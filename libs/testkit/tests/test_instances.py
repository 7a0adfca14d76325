"""Instances on one loop: who owns a callback, and what happens to it when its instance is killed or paused."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.etcd.pool import LEASE_KEEPALIVE
from kafscale.storage.system import monotonic_s, random_uuid, replaced, wall_ms
from kafscale.testkit.etcd_model.server import EtcdServer
from kafscale.testkit.instances import Instance, InstanceLoop, SeededMachine
from kafscale.testkit.memory_grpc.network import Network

TTL_S = 8


def told(story: Callable[[InstanceLoop], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=InstanceLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, InstanceLoop)
        runner.run(story(loop))


async def ticking(ticks: list[float], others: list[str]) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())
    finally:
        others.append("finally")


def test_a_killed_instance_runs_nothing_any_more_not_even_what_it_would_do_at_its_end() -> None:
    async def story(loop: InstanceLoop) -> None:
        one, ticks, ends = Instance("one"), list[float](), list[str]()
        with loop.running(one):
            task = asyncio.ensure_future(ticking(ticks, ends))
        await asyncio.sleep(3.5)
        assert len(ticks) == 3
        loop.kill(one)
        task.cancel()
        await asyncio.sleep(10)
        assert (len(ticks), ends) == (3, [])

    told(story)


def test_a_paused_instance_goes_on_where_it_was_and_finds_that_time_has_passed() -> None:
    async def story(loop: InstanceLoop) -> None:
        one, two, ticks, others = Instance("one"), Instance("two"), list[float](), list[float]()
        with loop.running(one):
            first = asyncio.ensure_future(ticking(ticks, []))
        with loop.running(two):
            second = asyncio.ensure_future(ticking(others, []))
        await asyncio.sleep(1.5)
        loop.pause(one)
        await asyncio.sleep(10)
        assert (len(ticks), len(others)) == (1, 11)
        loop.resume(one)
        await asyncio.sleep(0.1)
        assert ticks[1] - ticks[0] == pytest.approx(10.5)
        await asyncio.sleep(3)
        assert len(ticks) == 5
        for task in (first, second):
            task.cancel()

    told(story)


def test_whoever_wakes_a_task_the_task_stays_with_its_instance() -> None:
    async def story(loop: InstanceLoop) -> None:
        one, two, seen = Instance("one"), Instance("two"), list[str]()
        woken = loop.create_future()

        async def wait() -> None:
            await woken
            assert loop.current is not None
            seen.append(loop.current.name)
            await asyncio.to_thread(lambda: seen.append(f"thread of {loop.current and loop.current.name}"))

        with loop.running(one):
            task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        loop.run_as(two, lambda: woken.set_result(None))
        await task
        assert seen == ["one", "thread of one"]
        assert loop.current is None

    told(story)


def test_what_arrives_at_a_paused_instance_arrives_in_order_after_its_pause() -> None:
    async def story(loop: InstanceLoop) -> None:
        one, seen = Instance("one"), list[int]()
        loop.pause(one)
        for number in range(3):
            loop.run_as(one, lambda number=number: seen.append(number))  # type: ignore[misc]
        await asyncio.sleep(1)
        assert seen == []
        loop.resume(one)
        await asyncio.sleep(0)
        assert seen == [0, 1, 2]

    told(story)


def test_a_clock_that_is_wrong_is_that_of_one_instance() -> None:
    async def story(loop: InstanceLoop) -> None:
        one, two = Instance("one", skew_ms=-5_000), Instance("two")
        seen: dict[str, int] = {}
        with replaced(SeededMachine(loop, 1)):
            for each in (one, two):
                loop.run_as(each, lambda each=each: seen.update({each.name: wall_ms()}))  # type: ignore[misc]
        assert seen["two"] - seen["one"] == 5_000

    told(story)


def test_the_same_seed_gives_the_same_chances_and_times() -> None:
    def drawn(seed: int) -> list[object]:
        found: list[object] = []

        async def story(loop: InstanceLoop) -> None:
            with replaced(SeededMachine(loop, seed)):
                for _ in range(5):
                    await Backoff().sleep()
                    found.extend((random_uuid(), wall_ms(), monotonic_s()))

        told(story)
        return found

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


class Cluster:
    """An etcd, two members that hold a lease each, and an observer of their keys. All is written down."""

    def __init__(self, loop: InstanceLoop, seed: int) -> None:
        self.loop = loop
        self.chance = random.Random(seed)
        self.members = {name: Instance(name) for name in ("one", "two")}
        self.network = Network(lambda *_: self.chance.uniform(0.001, 0.02), self._run_as)
        self.lines: list[str] = []

    def _run_as(self, node: str, deliver: Callable[[], None]) -> None:
        instance = self.members.get(node)
        if instance is None:
            with self.loop.running(None):
                deliver()
        else:
            self.loop.run_as(instance, deliver)

    async def member(self, etcd: EtcdClient, name: str) -> None:
        lease = await etcd.lease_grant(TTL_S)
        for beat in range(1_000):
            await etcd.put(b"live/%s" % name.encode(), b"%d" % beat, lease=lease)
            keepalive = (await etcd._pool.stream(LEASE_KEEPALIVE)).call
            await keepalive.write(pb.LeaseKeepAliveRequest(ID=lease))
            await keepalive.read()
            keepalive.cancel()
            await asyncio.sleep(self.chance.uniform(1, 3))

    async def observe(self, etcd: EtcdClient) -> None:
        async with etcd.watch(b"live/", range_end=b"live0", start_revision=1) as watch:
            async for batch in watch:
                for event in batch.events:
                    kv = event.kv
                    self.lines.append(f"{self.loop.time():.6f} {kv.key!r} {kv.value!r} {kv.mod_revision}")

    def goes(self, name: str) -> list[str]:
        """The last words about a member."""
        return [line for line in self.lines if name in line][-2:]


def history(seed: int) -> Cluster:
    """One member is killed after 10 s, the other is paused for a second longer than its lease lives."""
    found: list[Cluster] = []

    async def story(loop: InstanceLoop) -> None:
        cluster = Cluster(loop, seed)
        found.append(cluster)
        with replaced(SeededMachine(loop, seed)):
            server = EtcdServer(cluster.network)
            await server.start()
            observer = server.client("observer")
            watching = asyncio.ensure_future(cluster.observe(observer))
            for name, member in cluster.members.items():
                with loop.running(member):
                    asyncio.ensure_future(cluster.member(server.client(name), name))
            await asyncio.sleep(10)
            loop.kill(cluster.members["one"])
            cluster.network.drop("one", "killed")
            loop.pause(cluster.members["two"])
            await asyncio.sleep(TTL_S + 1)
            assert server.model.under(b"live/") == []
            loop.resume(cluster.members["two"])
            await asyncio.sleep(5)
            loop.kill(cluster.members["two"])
            watching.cancel()
            await observer.close()
            await server.stop()

    told(story)
    return found[0]


def test_leases_of_a_killed_and_of_a_paused_member_expire_by_themselves() -> None:
    for seed in range(5):
        cluster = history(seed)
        for name in cluster.members:
            before, last = cluster.goes(name)
            assert "b''" in last, "the lease took the key along, and nobody could write it again"
            assert "b''" not in before


def test_the_same_seed_writes_the_same_history() -> None:
    first = history(7).lines
    assert len(first) > 8
    assert history(7).lines == first
    assert history(8).lines != first


def test_the_tasks_of_a_killed_instance_that_nobody_knows_any_more_run_nothing_when_garbage_is_collected() -> (
    None
):
    async def story(loop: InstanceLoop) -> None:
        ends = list[str]()

        def begin_and_die() -> None:
            one = Instance("one")
            with loop.running(one):
                asyncio.ensure_future(ticking([], ends))
            loop.call_soon(loop.kill, one)

        begin_and_die()
        await asyncio.sleep(5)
        gc.collect()
        assert ends == []

    told(story)
