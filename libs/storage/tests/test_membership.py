"""Who is live: leases that end with the process or its loop, node ids with one holder."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.ports import free_port
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.keepalive import KeepaliveThread
from kafscale.storage.membership.members import (
    Instance,
    InstanceState,
    Listener,
    LiveView,
    NodeIdTaken,
    Pace,
    Registration,
)
from kafscale.storage.membership.records import decode_live, encode_live, encode_node
from kafscale.testkit.etcd import start_etcd
from kafscale.testkit.proxy import FaultProxy

ROLE = "produce"
QUICK = Pace(ttl_s=3, interval_s=0.1, silence_max_s=0.5)


@asynccontextmanager
async def member(
    etcd: EtcdClient, keyspace: Keyspace, node_id: int | None = None, *, address: str = "", pace: Pace = QUICK
) -> AsyncIterator[Registration]:
    registration = await Registration.join(
        etcd, keyspace, role=ROLE, address=address, node_id=node_id, pace=pace
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(registration.run())
        yield registration
        await registration.leave()


@asynccontextmanager
async def live_view(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[LiveView]:
    view = LiveView(etcd, keyspace, ROLE)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(view.run())
        await view.loaded()
        yield view
        task.cancel()


async def settle(view: LiveView, check: Callable[[], bool]) -> None:
    changed = asyncio.Event()
    unsubscribe = view.subscribe(changed.set)
    async with asyncio.timeout(20):
        while not check():
            changed.clear()
            await changed.wait()
    unsubscribe()


def dead_address() -> str:
    return f"127.0.0.1:{free_port()}"


@contextmanager
def listening() -> Iterator[str]:
    """An address that answers, as that of a live process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_record_comes_back_as_it_went_in(keyspace: Keyspace) -> None:
    instance = Instance(
        role=ROLE,
        node_id=7,
        boot_id="b",
        address="h:1",
        state=InstanceState.DRAINING,
        listeners=(Listener(name="PLAINTEXT", host="h", port=9092), Listener(name="IN", host="i", port=1)),
        rack="a",
        http_address="h:2",
        started_ms=5,
        unannounced=True,
        create_revision=9,
    )
    kv = KeyValue(keyspace.live(ROLE, 7, "b"), encode_live(instance), 9, 9, 1, 0)
    assert decode_live(kv, keyspace) == instance
    assert instance.id == "7/b"
    assert instance.listener("IN") == instance.listeners[1]
    assert instance.listener("OUT") is None


async def test_an_instance_is_seen_from_start_to_leave(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with live_view(etcd, keyspace) as view:
        async with member(etcd, keyspace) as registration:
            me = registration.instance
            await settle(view, lambda: view.by_id(me.id) is not None)
            assert view.instances() == (me,)
            assert me.create_revision > 0
            assert view.ready() == ()
            await registration.set_state(InstanceState.READY)
            await settle(view, lambda: len(view.ready()) == 1)
            await registration.set_state(InstanceState.DRAINING)
            await settle(view, lambda: view.ready() == ())
            assert view.by_id(me.id) == registration.instance
            assert view.by_node(me.node_id) == registration.instance
        await settle(view, lambda: view.instances() == ())
    assert (await etcd.prefix(keyspace.root())).kvs == ()


async def test_an_instance_is_announced_later_unless_it_drains_before(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with live_view(etcd, keyspace) as view, member(etcd, keyspace) as registration:
        me = registration.instance
        await registration.set_state(InstanceState.READY, unannounced=True)
        await settle(view, lambda: len(view.ready()) == 1)
        assert view.ready()[0].unannounced
        await registration.announce(0.01)
        await settle(view, lambda: not view.instances()[0].unannounced)
        await registration.set_state(InstanceState.DRAINING)
        await registration.announce(0.01)
        await settle(view, lambda: view.ready() == ())
        assert view.by_id(me.id) == registration.instance
        assert registration.instance.state is InstanceState.DRAINING


async def test_node_ids_are_the_lowest_free_ones(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with member(etcd, keyspace) as one, member(etcd, keyspace) as two:
        assert (one.instance.node_id, two.instance.node_id) == (1, 2)
        await one.leave()
        async with member(etcd, keyspace) as three:
            assert three.instance.node_id == 1


async def test_instances_that_start_together_get_different_ids(etcd: EtcdClient, keyspace: Keyspace) -> None:
    joined = await asyncio.gather(
        *(
            Registration.join(etcd, keyspace, role=ROLE, address="", node_id=None, pace=QUICK)
            for _ in range(6)
        )
    )
    assert sorted(r.instance.node_id for r in joined) == [1, 2, 3, 4, 5, 6]
    await asyncio.gather(*(r.leave() for r in joined))


async def test_an_id_that_a_live_process_holds_is_refused_with_a_sentence(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    with listening() as address:
        pace = Pace(ttl_s=3, interval_s=0.8)
        async with member(etcd, keyspace, 5, address=address, pace=pace) as holder:
            with pytest.raises(NodeIdTaken, match="node id 5 of role produce is held by a live process"):
                await Registration.join(etcd, keyspace, role=ROLE, address="", node_id=5, pace=pace)
            kv = await etcd.get(keyspace.node(ROLE, 5))
            assert kv is not None
            assert kv.value == encode_node(holder.instance.boot_id), "and its holder keeps it"


async def test_two_that_want_one_id_at_the_same_moment_do_not_both_get_it(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    with listening() as address:
        joining = [
            Registration.join(etcd, keyspace, role=ROLE, address=address, node_id=3, pace=QUICK)
            for _ in range(2)
        ]
        results = await asyncio.gather(*joining, return_exceptions=True)
    winners = [r for r in results if isinstance(r, Registration)]
    losers = [r for r in results if isinstance(r, NodeIdTaken)]
    assert (len(winners), len(losers)) == (1, 1)
    await winners[0].leave()


async def leave_behind(etcd: EtcdClient, keyspace: Keyspace, address: str, ttl_s: int = 600) -> Instance:
    """What a process that was killed leaves until its lease runs out."""
    dead = Instance(role=ROLE, node_id=4, boot_id="dead", address=address, state=InstanceState.READY)
    lease = await etcd.lease_grant(ttl_s)
    await etcd.put(keyspace.node(ROLE, 4), encode_node("dead"), lease=lease)
    await etcd.put(keyspace.live(ROLE, 4, "dead"), encode_live(dead), lease=lease)
    return dead


async def test_a_restarted_process_takes_its_id_back_at_once_and_removes_its_predecessor(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    await leave_behind(etcd, keyspace, dead_address())
    started_s = time.monotonic()
    async with member(etcd, keyspace, 4, pace=Pace()) as registration:
        assert time.monotonic() - started_s < 2
        kvs = (await etcd.prefix(keyspace.live_prefix())).kvs
        assert [kv.key for kv in kvs] == [keyspace.live(ROLE, 4, registration.instance.boot_id)]


async def test_a_holder_whose_port_is_answered_by_another_but_whose_lease_is_not_renewed_is_dead(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    with listening() as address:
        await leave_behind(etcd, keyspace, address)
        async with member(etcd, keyspace, 4) as registration:
            assert registration.instance.node_id == 4


async def test_an_orphaned_live_key_of_an_earlier_boot_goes(etcd: EtcdClient, keyspace: Keyspace) -> None:
    orphan = Instance(role=ROLE, node_id=4, boot_id="zzz")
    await etcd.put(keyspace.live(ROLE, 4, "zzz"), encode_live(orphan))
    await etcd.put(keyspace.live(ROLE, 4, "000"), encode_live(orphan))
    await etcd.put(keyspace.live(ROLE, 44, "zzz"), encode_live(orphan))
    async with member(etcd, keyspace, 4) as registration:
        left = {keyspace.parse_live(kv.key)[1:] for kv in (await etcd.prefix(keyspace.live_prefix())).kvs}
        assert left == {(4, registration.instance.boot_id), (44, "zzz")}
    await etcd.delete(keyspace.live(ROLE, 44, "zzz"))


async def test_a_view_shows_the_newest_boot_of_each_node(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with live_view(etcd, keyspace) as view:
        for boot in ("z-older", "a-newer"):
            instance = Instance(role=ROLE, node_id=4, boot_id=boot)
            await etcd.put(keyspace.live(ROLE, 4, boot), encode_live(instance))
        await settle(view, lambda: view.by_id("4/a-newer") is not None)
        assert [i.boot_id for i in view.instances()] == ["a-newer"]
        assert view.by_id("4/z-older") is None


async def test_a_lost_lease_is_granted_again_and_the_same_boot_registered_again(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with live_view(etcd, keyspace) as view, member(etcd, keyspace) as registration:
        await registration.set_state(InstanceState.READY)
        before, lease = registration.instance, registration.lease_id
        await etcd.lease_revoke(lease)
        await settle(view, lambda: view.instances() == ())
        await settle(view, lambda: view.by_id(before.id) is not None)
        assert registration.lost_count == 1
        assert registration.lease_id != lease
        (after,) = view.ready()
        assert (after.id, after.state) == (before.id, InstanceState.READY)
        assert after.create_revision > before.create_revision


async def test_a_state_set_while_the_lease_is_lost_is_the_one_that_comes_back(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    slow = Pace(ttl_s=30, interval_s=20)  # the thread will not notice: set_state must
    async with live_view(etcd, keyspace) as view, member(etcd, keyspace, pace=slow) as registration:
        await etcd.lease_revoke(registration.lease_id)
        await registration.set_state(InstanceState.DRAINING)
        await settle(view, lambda: view.by_id(registration.instance.id) is not None)
        assert view.instances()[0].state is InstanceState.DRAINING


async def test_a_process_whose_id_was_taken_while_it_was_away_ends(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    registration = await Registration.join(
        etcd, keyspace, role=ROLE, address="", node_id=4, pace=Pace(ttl_s=3, interval_s=0.3)
    )
    await etcd.lease_revoke(registration.lease_id)
    await etcd.put(keyspace.node(ROLE, 4), encode_node("usurper"))
    with pytest.raises(NodeIdTaken, match="another process took it meanwhile"):
        await registration.run()
    kv = await etcd.get(keyspace.node(ROLE, 4))
    assert kv is not None
    assert kv.value == encode_node("usurper")
    await registration.leave()


async def test_an_outage_longer_than_the_lease_ends_in_the_same_registration(tmp_path: Path) -> None:
    keys = Keyspace()
    with start_etcd(tmp_path) as server:
        async with FaultProxy("127.0.0.1", server.client_port) as proxy:
            mine, other = EtcdClient.connect([proxy.address]), EtcdClient.connect([server.endpoint])
            async with live_view(other, keys) as view, member(mine, keys) as registration:
                me = registration.instance
                await settle(view, lambda: view.by_id(me.id) is not None)
                proxy.refuse()
                proxy.reset_all()
                await settle(view, lambda: view.instances() == ())
                assert not registration.is_fresh(time.monotonic()), "it knows that it may be thought dead"
                proxy.heal()
                await settle(view, lambda: view.by_id(me.id) is not None)
                assert registration.lost_count == 1
            await mine.close()
            await other.close()


class LeaseWatcher(threading.Thread):
    """Looks at a registration with a loop of its own, while the registration's loop is blocked."""

    def __init__(self, endpoint: str, registration: Registration) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.registration = registration
        self.renewed_while_wedged = False
        self.gone = threading.Event()

    def run(self) -> None:
        asyncio.run(self._look())

    async def _look(self) -> None:
        client = EtcdClient.connect([self.endpoint])
        renewed_at_s = self.registration.renewed_at_s
        async with asyncio.timeout(15):
            while self.registration.renewed_at_s == renewed_at_s:
                await client.lease_remaining_s(self.registration.lease_id)
            self.renewed_while_wedged = True
            while await client.get(self.registration._live_key()) is not None:
                self.gone.clear()
        self.gone.set()
        await client.close()


def test_the_thread_keeps_the_lease_without_the_loop_only_while_the_loop_is_young(
    etcd_server: EtcdProcess,
) -> None:
    keys = Keyspace("wedged")

    async def wedge() -> None:
        client = EtcdClient.connect([etcd_server.endpoint])
        async with member(client, keys) as registration:
            keepalive = registration._keepalive
            assert keepalive is not None
            watcher = LeaseWatcher(etcd_server.endpoint, registration)
            watcher.start()
            watcher.gone.wait(20)  # blocks the event loop: it does not tick
            watcher.join()
            assert watcher.renewed_while_wedged, "the thread needs no loop to send"
            assert watcher.gone.is_set(), "a loop that does not tick loses its lease"
            assert keepalive.skipped > 0
            async with asyncio.timeout(10):
                while await client.get(registration._live_key()) is None:
                    await client.lease_remaining_s(registration.lease_id)
            assert registration.lost_count == 1
        await client.close()

    asyncio.run(wedge())


async def test_the_keepalive_tries_the_next_endpoint(etcd_server: EtcdProcess, etcd: EtcdClient) -> None:
    lease = await etcd.lease_grant(60)
    lost: list[int] = []
    both = EtcdClient.connect([f"127.0.0.1:{free_port()}", etcd_server.endpoint])
    keepalive = KeepaliveThread(both.access, lease, lost.append, Pace(interval_s=0.05, silence_max_s=60))
    started_s = keepalive.renewed_at_s
    keepalive.start()
    async with asyncio.timeout(10):
        while keepalive.renewed_at_s == started_s:
            await etcd.lease_remaining_s(lease)
    keepalive.stop()
    await asyncio.to_thread(keepalive.join, 5)
    assert lost == []
    await etcd.lease_revoke(lease)
    await both.close()


async def test_a_live_record_that_cannot_be_read_is_judged_by_its_lease(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with member(etcd, keyspace, 5) as first:
        key = keyspace.live(ROLE, 5, first.instance.boot_id)
        await etcd.put(key, b"\xff", lease=first.lease_id)
        with pytest.raises(NodeIdTaken, match="node id 5 of role produce is held by a live process"):
            await Registration.join(etcd, keyspace, role=ROLE, address="", node_id=5, pace=QUICK)
    async with member(etcd, keyspace, 5) as second:
        assert second.instance.node_id == 5


async def test_a_node_id_without_a_lease_is_told_and_stays_as_it_is(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    """A key put by hand, without a lease: it never ends, and an instance that took the id would wait for ever."""
    key = keyspace.node(ROLE, 5)
    await etcd.put(key, b"\xff")
    await etcd.put(keyspace.nodes_prefix(ROLE) + b"x", b"no node of ours")
    with pytest.raises(NodeIdTaken, match="has no lease"):
        await Registration.join(etcd, keyspace, role=ROLE, address="", node_id=5, pace=QUICK)
    async with member(etcd, keyspace) as lowest:
        assert lowest.instance.node_id == 1
    held = await etcd.get(key)
    assert held is not None
    assert held.value == b"\xff"
