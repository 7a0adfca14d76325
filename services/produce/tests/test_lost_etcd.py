"""etcd loses its data, or is restored to an older state, under running instances: they claim and delete nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.log.claims import build_release
from kafscale.log.heads import decode_head
from kafscale.produce.bundles.cleaner import Cleaner
from kafscale.produce.server import ProduceService
from kafscale.storage.etcd.client import Delete, Put, Txn
from kafscale.storage.history import history as module
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack, witnesses_prefix
from kafscale.storage.keys import BundleId, prefix_end
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, Node, batch, until

Saved = dict[bytes, bytes]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.05)


async def saved(cluster: Cluster) -> Saved:
    """What a snapshot has, without registrations: their leases would end."""
    found = await cluster.etcd.prefix(cluster.keyspace.root())
    return {kv.key: kv.value for kv in found.kvs if not kv.lease}


async def restore(cluster: Cluster, state: Saved) -> None:
    """Registrations stay: instances would register again. All else is as it was, with newer revisions."""
    now = await cluster.etcd.prefix(cluster.keyspace.root())
    gone = [Delete(kv.key) for kv in now.kvs if not kv.lease and kv.key not in state]
    await cluster.etcd.txn(Txn(success=(*gone, *(Put(key, value) for key, value in state.items()))))


async def stopped(node: Node) -> None:
    await until(lambda: node.runtime.history.stopped, "the instance has seen it")
    assert node.metric("history_stopped") == 1


def history_of(cluster: Cluster) -> History:
    """Of another process."""
    return History(cluster.etcd, cluster.keyspace, cluster.store)


async def test_an_instance_refuses_everything_after_etcd_lost_its_data(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"one"))).error is ErrorCode.NONE
    await restore(cluster, {})
    await stopped(node)
    answer = await node.send(topic, 0, batch(b"two"))
    assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR, "it can be sent again"
    assert (await saved(cluster)) == {}, "nothing is begun in the empty etcd"
    assert node.is_live


async def test_no_partition_is_claimed_on_top_of_an_older_head(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"one"))).error is ErrorCode.NONE
    older = await saved(cluster)
    assert (await node.send(topic, 0, batch(b"two"))).error is ErrorCode.NONE
    await history_of(cluster).advance()
    await restore(cluster, older)
    answer = await node.send(topic, 0, batch(b"three"), timeout_ms=3_000)
    assert answer.error is not ErrorCode.NONE
    await stopped(node)
    head = await cluster.head(topic)
    assert (head.epoch, head.next) == (1, 1)
    other = await cluster.node()
    assert (await other.send(topic, 0, batch(b"four"))).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert await cluster.head(topic) == head, "nor by an instance that starts later"


async def test_an_instance_that_remembers_a_higher_head_stops_all(cluster: Cluster) -> None:
    """No witness lies between the older state and the loss."""
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"one"))).error is ErrorCode.NONE
    older = await saved(cluster)
    assert (await node.send(topic, 0, batch(b"two"))).error is ErrorCode.NONE
    await restore(cluster, older)
    for _ in range(2):  # the commit of the first is refused, and so the second begins with a claim
        answer = await node.send(topic, 0, batch(b"three"), timeout_ms=3_000)
        assert answer.error is not ErrorCode.NONE
    await stopped(node)
    head = await cluster.head(topic)
    assert (head.epoch, head.next) == (1, 1)
    with pytest.raises(WentBack):
        await node.runtime.history.verify()  # it has put the proof into the bucket
    trouble = await history_of(cluster).trouble()
    assert trouble is not None
    assert "has epoch 1 and high watermark 1, and had 1 and 2" in trouble


async def test_the_instance_goes_on_when_the_right_etcd_is_back(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"one"))).error is ErrorCode.NONE
    right = await saved(cluster)
    prefix = witnesses_prefix(cluster.keyspace)
    await cluster.etcd.txn(Txn(success=(Delete(prefix, prefix_end(prefix)),)))
    await stopped(node)
    witnesses = [Put(key, value) for key, value in right.items() if key.startswith(prefix)]
    await cluster.etcd.txn(Txn(success=tuple(witnesses)))
    await until(lambda: node.runtime.history.stopped is None, "it is the right one again")
    assert (await node.send(topic, 0, batch(b"two"))).error is ErrorCode.NONE
    assert await cluster.log(topic) == [b"one", b"two"]


@pytest.fixture
def quick_cleaner(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for heads each half second instead of each KAFSCALE_SETTLE_MS, and deletes without waiting."""
    made = ProduceService._cleaner

    def cleaner(self: ProduceService) -> Cleaner:
        found = made(self)
        found._ask_every_ms = found._look_every_ms = 50
        return found

    monkeypatch.setattr(ProduceService, "_cleaner", cleaner)


async def bundles(cluster: Cluster) -> set[str]:
    return {info.key async for info in cluster.store.list(cluster.keyspace.bundles_prefix())}


async def looks(node: Node, count: int = 5) -> None:
    """Until the cleaner has looked so often."""
    cleaner = node.service.cleaner
    until_then = cleaner.looks + count
    await until(lambda: cleaner.looks >= until_then, "the cleaner looks")


@pytest.mark.usefixtures("quick_cleaner")
async def test_an_etcd_that_lost_its_data_costs_no_bundle(cluster: Cluster) -> None:
    node = await cluster.node(bundle_grace_ms=0)
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"acknowledged"))).error is ErrorCode.NONE
    before = await bundles(cluster)
    assert len(before) == 1
    await restore(cluster, {})
    await stopped(node)
    await looks(node)
    assert await bundles(cluster) == before
    assert node.is_live


@pytest.mark.usefixtures("quick_cleaner")
@pytest.mark.parametrize("witnessed", [True, False])
async def test_an_etcd_that_went_back_costs_no_bundle(cluster: Cluster, witnessed: bool) -> None:
    node = await cluster.node(bundle_grace_ms=3_600_000)
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"in the snapshot"))).error is ErrorCode.NONE
    older = await saved(cluster)
    for number in range(3):
        assert (await node.send(topic, 0, batch(b"later %d" % number))).error is ErrorCode.NONE
    if witnessed:
        await history_of(cluster).advance()
    assert len(await bundles(cluster)) == 4
    tail = (
        await cluster.head(topic)
    ).tail  # without slices that were folded: those are dead in every history
    needed = {cluster.keyspace.bundle_key(BundleId(seg.bundle)) for seg in tail if seg.is_slice}
    assert needed
    await restore(cluster, older)
    node.service.own_bundles.dead._grace_ms = 0  # from now on what is dead is deleted at once
    for _ in range(2):
        await node.send(topic, 0, batch(b"after"), timeout_ms=2_000)
    await stopped(node)
    await looks(node)
    assert needed <= await bundles(cluster)


async def test_no_head_changes_in_an_etcd_that_went_back(cluster: Cluster) -> None:
    """Also not by a transaction that was under way and whose revision fits."""
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"one"))).error is ErrorCode.NONE
    key = cluster.keyspace.head(topic.topic_id, 0)
    before = await cluster.etcd.get(key)
    assert before is not None
    prefix = witnesses_prefix(cluster.keyspace)
    await cluster.etcd.txn(Txn(success=(Delete(prefix, prefix_end(prefix)),)))
    released = replace(decode_head(before.value), owner="")
    answers: list[object] = []
    txn = build_release(cluster.keyspace, topic.topic_id, 0, released=released, revision=before.mod_revision)
    node.service.committer.submit(txn, answers.append)
    await stopped(node)
    assert (answers, await cluster.etcd.get(key)) == ([], before)
