"""What each fault does to producers: nothing acknowledged is lost, nothing unknown is called failed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kafscale.produce.server import BUNDLES_BURST
from kafscale.produce.settings import ProduceSettings
from kafscale.runtime.committer import Refused
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, Txn, TxnResult, UnknownKind
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import Pace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.etcd import start_etcd
from kafscale.testkit.objects import Fault, FaultyStore
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.produce import ProduceRequest
from produce_harness import SEGMENTS, Cluster, batch, until
from produce_load import Load


class PausedEtcd(EtcdClient):
    """A client whose transactions can be held before they are sent, as in a stopped process."""

    running: asyncio.Event

    @classmethod
    def to(cls, cluster: Cluster, server: EtcdProcess) -> PausedEtcd:
        client = cls.connect([server.endpoint])
        cluster.clients.append(client)
        client.running = asyncio.Event()
        client.running.set()
        return client

    async def txn(self, txn: Txn, *, timeout_s: float = 3.0) -> TxnResult:
        await self.running.wait()
        return await super().txn(txn, timeout_s=timeout_s)


async def test_a_paused_writer_commits_nothing_after_another_claimed(
    cluster: Cluster, etcd_server: EtcdProcess
) -> None:
    """The zombie has uploaded; its commit meets a head that moved on."""
    paused = PausedEtcd.to(cluster, etcd_server)
    zombie = await cluster.node(etcd=paused, **SEGMENTS)
    topic = await cluster.topic()
    assert (await zombie.send(topic, 0, batch(b"a"))).base_offset == 0
    paused.running.clear()
    late = zombie.send(topic, 0, batch(b"zombie"))
    await until(lambda: zombie.service.committer.backlog == 0 and zombie.metric("puts_total") == 4)
    other = await cluster.node(**SEGMENTS)
    taken = None
    for attempt in range(100):  # the zombie's process lives, and registers again each time
        await cluster.etcd.lease_revoke(zombie.registration.lease_id)
        taken = await other.send(topic, 0, batch(b"b"), lane_epoch=attempt)
        if taken.error is ErrorCode.NONE:
            break
    assert taken is not None
    assert taken.base_offset == 1
    etags = {seg.base: seg.etag for seg in await cluster.segments(topic)}
    paused.running.set()
    assert (await late).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert zombie.metric("stepdowns_total", reason="fenced") == 1
    assert await cluster.log(topic) == [b"a", b"b"]
    assert {seg.base: seg.etag for seg in await cluster.segments(topic)} == etags
    assert (await other.send(topic, 0, batch(b"c"), lane_epoch=101)).base_offset == 2


async def test_a_zombies_late_put_never_replaces_what_its_successor_committed(cluster: Cluster) -> None:
    store = FaultyStore(cluster.store)
    zombie = await cluster.node(store=store, **SEGMENTS)
    topic = await cluster.topic()
    await zombie.send(topic, 0, batch(b"a"))
    store.plan = lambda operation, key: Fault.LATE if operation == "put" else None
    zombie.send(topic, 0, batch(b"zombie"), timeout_ms=100)
    await until(lambda: store.late_count >= 2, "its PUTs are on their way")
    await cluster.etcd.lease_revoke(zombie.registration.lease_id)
    other = await cluster.node(**SEGMENTS)
    await until(lambda: zombie.id not in {i.id for i in other.service.live.instances()}, "seen as gone")
    assert (await other.send(topic, 0, batch(b"b"))).base_offset == 1
    await store.deliver_late()
    assert await cluster.log(topic) == [b"a", b"b"]


async def test_an_orphan_of_an_older_epoch_is_replaced(cluster: Cluster) -> None:
    """The PUT of the dead epoch landed: its name is taken, and the new owner needs it."""
    store = FaultyStore(cluster.store)
    zombie = await cluster.node(store=store, **SEGMENTS)
    topic = await cluster.topic()
    await zombie.send(topic, 0, batch(b"a"))
    store.plan = lambda operation, key: Fault.LATE if operation == "put" else None
    zombie.send(topic, 0, batch(b"zombie"), timeout_ms=100)
    await until(lambda: store.late_count >= 2, "its PUTs are on their way")
    await store.deliver_late()
    await zombie.kill()
    other = await cluster.node(**SEGMENTS)
    assert (await other.send(topic, 0, batch(b"b"))).base_offset == 1
    assert await cluster.log(topic) == [b"a", b"b"]


async def test_a_lease_lost_by_a_live_owner_hurts_nobody(cluster: Cluster) -> None:
    nodes = [await cluster.node(), await cluster.node()]
    topic = await cluster.topic("t", 6)
    async with Load(cluster, topic) as load:
        for node in (*nodes, *nodes):
            await load.progress()
            await cluster.etcd.lease_revoke(node.registration.lease_id)
        await load.progress()


async def test_etcd_down_for_longer_than_the_lease_costs_no_epoch(keyspace: Keyspace, tmp_path: Path) -> None:
    with start_etcd(tmp_path) as server:
        client = EtcdClient.connect([server.endpoint])
        cluster = Cluster(client, keyspace, MemoryStore())
        node = await cluster.node(pace=Pace(ttl_s=2, interval_s=0.5, silence_max_s=1.0))
        topic = await cluster.topic("t", 3)
        async with Load(cluster, topic, timeout_ms=30_000) as load:
            await load.progress()
            epochs = [(await cluster.head(topic, n)).epoch for n in range(3)]
            server.kill()
            await until(lambda: node.service.committer.unresolved_ms() > 2_500, "longer than the lease")
            acked = load.acked
            await server.start()
            await until(lambda: load.acked > acked, "it goes on")
            await load.progress()
        assert [(await cluster.head(topic, n)).epoch for n in range(3)] == epochs
        await node.kill()
        await client.close()


async def test_while_etcd_is_down_only_a_quarter_of_the_memory_is_open(
    cluster: Cluster, etcd_server: EtcdProcess
) -> None:
    paused = PausedEtcd.to(cluster, etcd_server)
    unknown = EtcdUnknown(UnknownKind.UNAVAILABLE, "down")
    node = await cluster.node(etcd=paused, memory_bytes=16 << 20)
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a"))
    up = EtcdClient.txn

    async def down(txn: Txn, *, timeout_s: float = 3.0) -> TxnResult:
        if not paused.running.is_set():
            raise unknown
        return await up(paused, txn, timeout_s=timeout_s)

    paused.txn = down  # type: ignore[method-assign]
    paused.running.clear()
    waiting = [node.send(topic, 0, batch(b"x" * 1_000_000))]
    await until(lambda: node.service.committer.unresolved_ms() > 1_100, "noticed")
    waiting += [node.send(topic, 0, batch(b"x" * 1_000_000)) for _ in range(3)]
    refused = await node.send(topic, 0, batch(b"x" * 1_000_000))
    assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
    paused.running.set()
    assert [answer.error for answer in await asyncio.gather(*waiting)] == [ErrorCode.NONE] * 4
    assert (await node.send(topic, 0, batch(b"x" * 1_000_000))).error is ErrorCode.NONE


async def test_a_commit_that_stays_unknown_is_called_unknown_at_the_deadline(
    cluster: Cluster, etcd_server: EtcdProcess
) -> None:
    paused = PausedEtcd.to(cluster, etcd_server)
    node = await cluster.node(etcd=paused)
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a"))
    paused.running.clear()
    answer = await node.send(topic, 0, batch(b"b"), timeout_ms=200)
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    paused.running.set()
    assert (await node.send(topic, 0, batch(b"c"))).base_offset == 2
    assert await cluster.log(topic) == [b"a", b"b", b"c"]


async def test_a_record_with_acks_1_is_answered_when_it_is_written_whatever_its_timeout_says(
    cluster: Cluster, etcd_server: EtcdProcess
) -> None:
    """Kafka's timeout bounds the wait for replicas. REQUEST_TIMED_OUT would make a client write the record twice."""
    paused = PausedEtcd.to(cluster, etcd_server)
    node = await cluster.node(etcd=paused)
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a"))
    paused.running.clear()
    one = [node.send(topic, 0, batch(b"b"), acks=1, timeout_ms=timeout) for timeout in (0, 1)]
    all_ = await node.send(topic, 0, batch(b"c"), timeout_ms=200)  # its time is over after that of the others
    assert all_.error is ErrorCode.REQUEST_TIMED_OUT
    assert not any(waiting.done() for waiting in one)
    paused.running.set()
    assert [(await waiting).error for waiting in one] == [ErrorCode.NONE] * 2
    assert await cluster.log(topic) == [b"a", b"b", b"b", b"c"]


@pytest.mark.parametrize(
    ("acks", "timeout_ms", "patience_ms"),
    [(-1, -1, 5_000), (-1, 0, 5_000), (-1, 4_999, 5_000), (-1, 5_001, 5_001), (-1, 2**31 - 1, 120_000)]
    + [(acks, timeout_ms, 600_000) for acks in (0, 1) for timeout_ms in (-1, 0, 30_000)],
)
async def test_a_timeout_is_long_enough_for_a_flush(
    cluster: Cluster, acks: int, timeout_ms: int, patience_ms: int
) -> None:
    node = await cluster.node(produce_timeout_min_ms=ProduceSettings().produce_timeout_min_ms)
    message = ProduceRequest(acks=acks, timeout_ms=timeout_ms)
    assert node.service.handler.patience_ms(message) == patience_ms


class ForgetfulEtcd(PausedEtcd):
    """Applies transactions, and while `lossy` their answers are lost; the repeat waits for `running`."""

    lossy: UnknownKind | None = None
    lost = 0

    async def txn(self, txn: Txn, *, timeout_s: float = 3.0) -> TxnResult:
        if self.lost:
            await self.running.wait()
        result = await EtcdClient.txn(self, txn, timeout_s=timeout_s)
        if self.lossy is not None:
            self.lost += 1
            raise EtcdUnknown(self.lossy, "applied, and then this")
        return result


async def test_a_commit_that_was_applied_is_acknowledged_although_its_writer_was_fenced_since(
    cluster: Cluster, etcd_server: EtcdProcess
) -> None:
    """Its answer was lost, and before it could ask again another instance claimed and committed on top."""
    etcd = ForgetfulEtcd.to(cluster, etcd_server)
    assert isinstance(etcd, ForgetfulEtcd)
    zombie = await cluster.node(etcd=etcd)
    topic = await cluster.topic()
    await zombie.send(topic, 0, batch(b"a"))
    etcd.running.clear()
    etcd.lossy = UnknownKind.TIMEOUT
    late = zombie.send(topic, 0, batch(b"b"))
    await until(lambda: etcd.lost == 1, "applied, and its answer lost")
    await cluster.etcd.lease_revoke(zombie.registration.lease_id)
    other = await cluster.node()
    await until(lambda: zombie.id not in {i.id for i in other.service.live.instances()}, "seen as gone")
    assert (await other.send(topic, 0, batch(b"c"))).base_offset == 2
    etcd.lossy = None
    etcd.running.set()
    answer = await late
    assert answer.base_offset == 1
    assert zombie.metric("stepdowns_total", reason="fenced") == 1
    assert await cluster.log(topic) == [b"a", b"b", b"c"]


async def test_an_etcd_without_space_is_neither_a_failure_nor_an_acknowledgement(
    cluster: Cluster, etcd_server: EtcdProcess
) -> None:
    """etcd applies the transaction and then says that it had no space."""
    etcd = ForgetfulEtcd.to(cluster, etcd_server)
    assert isinstance(etcd, ForgetfulEtcd)
    node = await cluster.node(etcd=etcd)
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a"))
    etcd.lossy = UnknownKind.NOSPACE
    waiting = node.send(topic, 0, batch(b"b"))
    await until(lambda: etcd.lost > 2, "asked again")
    assert not waiting.done()
    assert (await node.send(topic, 0, batch(b"c"))).error is ErrorCode.KAFKA_STORAGE_ERROR
    etcd.lossy = None
    assert (await waiting).base_offset == 1
    assert (await node.send(topic, 0, batch(b"c"))).base_offset == 2
    assert await cluster.log(topic) == [b"a", b"b", b"c"]
    assert (await cluster.head(topic)).epoch == 1


async def test_a_store_that_is_away_for_a_while_delays_and_loses_nothing(cluster: Cluster) -> None:
    store = FaultyStore(cluster.store)
    node = await cluster.node(store=store)
    topic = await cluster.topic("t", 3)
    async with Load(cluster, topic, timeout_ms=30_000) as load:
        await load.progress()
        store.plan = lambda operation, key: Fault.UNAVAILABLE
        await until(lambda: node.metric("puts_unknown_total") > 10, "it is away")
        store.plan = lambda operation, key: None
        await load.progress()
    assert not any(producer.retries for producer in load.producers)


@pytest.mark.parametrize("written", [SEGMENTS, {}], ids=["segments", "bundles"])
async def test_lost_answers_of_the_store_cost_a_head_and_nothing_else(
    cluster: Cluster, written: dict[str, int]
) -> None:
    store = FaultyStore(cluster.store)
    await cluster.node(store=store, **written)
    topic = await cluster.topic("t", 2)
    lost = iter(range(10_000))
    store.plan = lambda operation, key: (
        Fault.DROP_REPLY if operation == "put" and next(lost) % 3 == 0 else None
    )
    async with Load(cluster, topic, timeout_ms=30_000) as load:
        await load.progress(60)
    assert not any(producer.retries for producer in load.producers)


async def test_a_full_store_is_a_retriable_answer_and_passes(cluster: Cluster) -> None:
    store = FaultyStore(cluster.store)
    node = await cluster.node(store=store)
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a"))
    store.plan = lambda operation, key: Fault.FULL if operation == "put" else None
    for _ in range(50):
        assert (await node.send(topic, 0, batch(b"b"))).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.metric("stepdowns_total", reason="store_full") <= 3, "clients that retry cost no epochs"
    store.plan = lambda operation, key: None
    answer = await node.send(topic, 0, batch(b"c"))
    while answer.error is ErrorCode.KAFKA_STORAGE_ERROR:
        answer = await node.send(topic, 0, batch(b"c"))
    assert answer.base_offset == 1
    assert await cluster.log(topic) == [b"a", b"c"]


async def test_a_damaged_segment_is_never_replayed_into_a_writer(cluster: Cluster) -> None:
    """A producer's state from wrong bytes would take repeats for new batches."""
    node = await cluster.node(node_id=1)
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a", pid=1, epoch=0, seq=0))
    await node.kill()
    store = FaultyStore(cluster.store)
    store.plan = lambda operation, key: Fault.BIT_FLIP if operation == "get" else None
    again = await cluster.node(node_id=1, store=store)
    answer = await again.send(topic, 0, batch(b"b", pid=1, epoch=0, seq=1))
    assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
    store.plan = lambda operation, key: None
    while (answer := await again.send(topic, 0, batch(b"b", pid=1, epoch=0, seq=1))).error:
        assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert answer.base_offset == 1


async def test_requests_are_refused_not_kept_when_a_claim_takes_too_long(cluster: Cluster) -> None:
    store = FaultyStore(cluster.store)
    first = await cluster.node(node_id=1, store=store)
    topic = await cluster.topic()
    await first.send(topic, 0, batch(b"a"))
    await first.kill()
    store.plan = lambda operation, key: Fault.UNAVAILABLE if operation == "get" else None
    again = await cluster.node(node_id=1, store=store)
    answers = await asyncio.gather(*(again.send(topic, 0, batch(b"%d" % n)) for n in range(3)))
    assert [answer.error for answer in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
    store.plan = lambda operation, key: None
    await until(lambda: again.owned, "loaded at last")
    assert (await again.send(topic, 0, batch(b"b"), lane_epoch=1)).base_offset == 1


async def test_a_claim_that_etcd_refuses_is_not_sent_again_with_the_next_request(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    ownership = node.service.ownership

    async def refused(txn: Txn) -> Refused:
        return Refused(reason="no right")

    monkeypatch.setattr(node.service.committer, "ask", refused)
    before_ms = ownership.tools.clock.now_ms()
    assert (await node.send(topic, 0, batch(b"x"))).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    penalty = ownership.tools.penalties.error((topic.topic_id, 0), before_ms)
    assert penalty is ErrorCode.KAFKA_STORAGE_ERROR


async def test_two_instances_under_every_small_fault_at_once(cluster: Cluster) -> None:
    stores = [FaultyStore(cluster.store), FaultyStore(cluster.store)]
    count = iter(range(1_000_000))

    def plan(operation: str, key: str) -> Fault | None:
        if operation == "put":
            return {3: Fault.UNAVAILABLE, 5: Fault.DROP_REPLY, 8: Fault.LATE}.get(next(count) % 11)
        return None

    for store in stores:
        store.plan = plan
    nodes = [await cluster.node(store=store) for store in stores]
    topic = await cluster.topic("t", 4)
    async with Load(cluster, topic, timeout_ms=30_000) as load:
        for node in nodes:
            await load.progress(40)
            await cluster.etcd.lease_revoke(node.registration.lease_id)
            for store in stores:
                await store.deliver_late()
        await load.progress(40)


async def test_a_drain_ends_in_time_although_the_store_is_away(cluster: Cluster) -> None:
    store = FaultyStore(cluster.store)
    leaver = await cluster.node(store=store, drain_timeout_ms=300)
    topic = await cluster.topic("t", 2)
    await leaver.send_many([(topic, {n: batch(b"a") for n in range(2)})])
    store.plan = lambda operation, key: Fault.UNAVAILABLE
    stuck = leaver.send(topic, 0, batch(b"b"))
    await leaver.drain()
    assert (await stuck).response is None, "no producer got a failure"
    other = await cluster.node()
    assert (await other.send(topic, 0, batch(b"c"))).base_offset == 1
    assert await cluster.log(topic) == [b"a", b"c"]


async def test_a_budget_of_bundles_stretches_the_flushes_and_serves_all(cluster: Cluster) -> None:
    node = await cluster.node(bundles_per_s=40)
    topic = await cluster.topic("t", 8)
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    async with Load(cluster, topic) as load:
        await load.progress(400)
    bundles = node.metric("bundle_bytes_count")
    assert bundles <= BUNDLES_BURST + 40 * (loop.time() - started_s) + 1
    assert bundles < load.acked / 2, "records share the bundles that there are"


async def test_after_three_thousand_segments_a_restart_serves_at_once(cluster: Cluster) -> None:
    store = FaultyStore(cluster.store)
    node = await cluster.node(node_id=1, store=store, **SEGMENTS)
    topic = await cluster.topic()
    big = b"x" * 4096
    for wave in range(0, 3_000, 4):  # as many as are uploaded at once: a segment each
        sent = (node.send(topic, 0, batch(big, pid=1, epoch=0, seq=n)) for n in range(wave, wave + 4))
        await asyncio.gather(*sent)
    assert node.metric("flushes_total") == 3_000
    await node.kill()
    store.requests.clear()
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    again = await cluster.node(node_id=1, store=store)
    repeated = await again.send(topic, 0, batch(big, pid=1, epoch=0, seq=2_999))
    assert repeated.base_offset == 2_999
    assert loop.time() - started_s < 3
    assert sum(operation == "get" for operation, _ in store.requests) <= 34
    assert len((await cluster.meta(topic)).chunks) <= 64
    assert len(await cluster.segments(topic)) == 3_000
