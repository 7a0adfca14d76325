"""The copies of owner records that services watch."""

import asyncio

from kafscale.storage.coordination import OwnerRecord, encode_owner
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace, PartitionKey, SlotId, TopicId
from kafscale.storage.owner_views import OwnersView, SlotsView
from kafscale.storage.slots import Slot, slot_of
from kafscale.testkit.etcd import EtcdProcess


async def test_owners_follow_etcd_and_each_change_names_its_partition(
    etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    etcd = EtcdClient.connect([etcd_server.endpoint])
    topic_id = TopicId(bytes(15) + b"t")
    one, two = OwnerRecord(epoch=1, owner="1/a"), OwnerRecord(epoch=2, owner="2/b")
    await etcd.put(keyspace.owner(topic_id, 3), encode_owner(one))
    await etcd.put(keyspace.owners_prefix() + b"what is this", encode_owner(one))
    owners, changed = OwnersView(etcd, keyspace), list[PartitionKey]()
    owners.follow(changed.append)
    running = asyncio.create_task(owners.run())
    await owners.ready()
    assert (owners.of((topic_id, 3)), owners.of((topic_id, 4))) == (one, None)
    put = await etcd.put(keyspace.owner(topic_id, 4), encode_owner(two))
    assert await owners.wait_revision(put.revision, 10)
    assert owners.of((topic_id, 4)) == two
    assert changed == [(topic_id, 3), (topic_id, 4)]
    assert len(owners.items) == 2, "a key that names no partition is not kept"
    running.cancel()
    await asyncio.wait([running])
    await etcd.close()


async def test_the_slot_table_follows_etcd(etcd_server: EtcdProcess, keyspace: Keyspace) -> None:
    etcd = EtcdClient.connect([etcd_server.endpoint])
    one, two = Slot(epoch=1, owner="1/a"), Slot(epoch=2, owner="2/b")
    await etcd.put(keyspace.slot_claim(slot_of("g")), encode_owner(one))
    table = SlotsView(etcd, keyspace)
    running = asyncio.create_task(table.run())
    await table.ready()
    assert (table.of(slot_of("g")), table.of(SlotId(0))) == (one, None)
    put = await etcd.put(keyspace.slot_claim(slot_of("g")), encode_owner(two))
    assert await table.wait_revision(put.revision, 10)
    assert table.of(slot_of("g")) == two
    assert list(table.claimed()) == [two]
    running.cancel()
    await asyncio.wait([running])
    await etcd.close()
