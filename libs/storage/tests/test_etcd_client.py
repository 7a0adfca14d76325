"""The client against a real etcd: transactions, reads, leases, and what etcd refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from kafscale.storage.etcd.client import (
    Compare,
    Delete,
    DeleteResult,
    EtcdClient,
    EtcdRejected,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)
from kafscale.storage.etcd.client import PutResult as Written
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.testkit.etcd_model.server import EtcdServer
from kafscale.testkit.memory_grpc.network import Network


@pytest_asyncio.fixture(params=["real", "model"])
async def etcd(request: pytest.FixtureRequest) -> AsyncIterator[EtcdClient]:
    """The model stands for etcd in simulations, so the client gets the same of both."""
    if request.param == "real":
        client = EtcdClient.connect([request.getfixturevalue("etcd_server").endpoint])
        yield client
        await client.close()
        return
    server = EtcdServer(Network())
    await server.start()
    client = server.client("client")
    yield client
    await client.close()
    await server.stop()


NESTED_MAX = 127
"""Nested transactions that fit in one request at etcd's default of 128 operations."""


def cas(key: bytes, revision: int, value: bytes) -> Txn:
    return Txn((Compare(key, "mod", "=", revision),), (Put(key, value),), (Range(key),))


def nested(result: TxnResult) -> list[TxnResult]:
    return [r for r in result.responses if isinstance(r, TxnResult)]


async def test_a_nested_compare_that_fails_leaves_its_neighbours_alone(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    keys = [keyspace.topic(f"t{n}") for n in range(5)]
    revisions = [(await etcd.put(key, b"old")).revision for key in keys]
    revisions[2] -= 1  # a fenced one
    result = await etcd.txn(
        Txn(success=tuple(cas(k, r, b"new") for k, r in zip(keys, revisions, strict=True)))
    )

    assert result.succeeded
    assert [r.succeeded for r in nested(result)] == [True, True, False, True, True]
    kvs = [await etcd.get(key) for key in keys]
    assert [kv.value for kv in kvs if kv] == [b"new", b"new", b"old", b"new", b"new"]
    written = {kv.mod_revision for kv in kvs if kv and kv.value == b"new"}
    assert written == {result.revision}, "the revision of every winner is the top-level one"
    read = nested(result)[2].responses[0]
    assert isinstance(read, RangeResult)
    assert (read.kvs[0].value, read.kvs[0].mod_revision) == (b"old", revisions[2] + 1)


async def test_nested_compares_see_the_state_before_the_request(etcd: EtcdClient, keyspace: Keyspace) -> None:
    a, b = keyspace.topic("a"), keyspace.topic("b")
    absent = Compare(a, "version", "=", 0)
    result = await etcd.txn(
        Txn(success=(Txn((absent,), (Put(a, b"1"),)), Txn((absent,), (Put(b, b"2"),), (Range(a),))))
    )
    assert [r.succeeded for r in nested(result)] == [True, True]


async def test_a_full_request_of_nested_transactions_fits(etcd: EtcdClient, keyspace: Keyspace) -> None:
    keys = [keyspace.topic(f"t{n}") for n in range(NESTED_MAX)]
    result = await etcd.txn(Txn(success=tuple(cas(key, 0, b"v" * 1000) for key in keys)))
    assert all(r.succeeded for r in nested(result))
    again = await etcd.txn(Txn(success=tuple(cas(key, 0, b"w") for key in keys)))
    assert not any(r.succeeded for r in nested(again))


async def test_too_many_operations_are_refused_and_nothing_is_written(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    puts = tuple(Put(keyspace.topic(f"t{n}"), b"") for n in range(129))
    with pytest.raises(EtcdRejected, match="too many operations"):
        await etcd.txn(Txn(success=puts))
    assert (await etcd.prefix(keyspace.root())).kvs == ()


async def test_a_key_written_twice_in_a_request_is_refused(etcd: EtcdClient, keyspace: Keyspace) -> None:
    key = keyspace.topic("a")
    with pytest.raises(EtcdRejected, match="duplicate key"):
        await etcd.txn(Txn(success=(Put(key, b"1"), Put(key, b"2"))))


async def test_each_operation_answers_in_kind(etcd: EtcdClient, keyspace: Keyspace) -> None:
    a, b = keyspace.topic("a"), keyspace.topic("b")
    await etcd.put(b, b"x")
    result = await etcd.txn(
        Txn(success=(Put(a, b"1"), Delete(b), Range(keyspace.root(), prefix_end(keyspace.root()))))
    )
    put, deleted, found = result.responses
    assert isinstance(put, Written)
    assert deleted == DeleteResult(1, result.revision)
    assert isinstance(found, RangeResult)
    assert [kv.key for kv in found.kvs] == [a]


async def test_a_prefix_of_many_pages_is_read_whole_and_at_one_revision(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    await etcd.txn(Txn(success=tuple(Put(keyspace.topic(f"{n:03}"), b"%d" % n) for n in range(100))))
    neighbour = Keyspace(keyspace.namespace + "0")
    await etcd.put(neighbour.topic("zzz"), b"")
    found = await etcd.prefix(keyspace.root(), page_keys=7)
    assert [kv.value for kv in found.kvs] == [b"%d" % n for n in range(100)]
    assert found.count == 100
    empty = await etcd.prefix(keyspace.topic("none"))
    assert (empty.kvs, empty.count) == ((), 0)
    await etcd.delete(neighbour.topic("zzz"))


async def test_several_reads_in_one_request_share_a_revision(etcd: EtcdClient, keyspace: Keyspace) -> None:
    a, b = keyspace.topic("a"), keyspace.topic("b")
    await etcd.put(a, b"1")
    last = await etcd.put(b, b"2")
    found = await etcd.ranges([Range(a), Range(keyspace.topic("none")), Range(b)])
    assert [[kv.value for kv in r.kvs] for r in found] == [[b"1"], [], [b"2"]]
    assert {r.revision for r in found} == {last.revision}


async def test_keys_without_values_and_limits(etcd: EtcdClient, keyspace: Keyspace) -> None:
    for n in range(3):
        await etcd.put(keyspace.topic(f"{n}"), b"v")
    end = prefix_end(keyspace.root())
    found = await etcd.range(keyspace.root(), range_end=end, limit=2, keys_only=True)
    assert [(kv.key, kv.value) for kv in found.kvs] == [
        (keyspace.topic("0"), b""),
        (keyspace.topic("1"), b""),
    ]
    assert found.more


async def test_a_lease_takes_its_keys_along_and_revoking_twice_is_no_error(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    lease = await etcd.lease_grant(60)
    await etcd.put(keyspace.topic("a"), b"", lease=lease)
    assert 50 < await etcd.lease_remaining_s(lease) <= 60
    await etcd.lease_revoke(lease)
    assert await etcd.get(keyspace.topic("a")) is None
    assert await etcd.lease_remaining_s(lease) == -1
    await etcd.lease_revoke(lease)


async def test_a_put_under_a_lease_that_is_gone_is_refused(etcd: EtcdClient, keyspace: Keyspace) -> None:
    with pytest.raises(EtcdRejected) as refused:
        await etcd.put(keyspace.topic("a"), b"", lease=4711)
    assert refused.value.is_lease_gone
    with pytest.raises(EtcdRejected):
        await etcd.txn(Txn(success=(Put(keyspace.topic("b"), b""), Put(keyspace.topic("a"), b"", 4711))))
    assert await etcd.get(keyspace.topic("b")) is None
