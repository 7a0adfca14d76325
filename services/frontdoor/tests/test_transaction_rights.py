"""Which rights the requests of transactions need at the front door."""

from __future__ import annotations

import pytest
from door_harness import settled
from group_requests import ONE, TWO, all_sent, answered, ask, of_transaction, running
from kafscale.testkit.acls import ALICE, allowing
from kafscale.wire.errors import error_codes

BOTH = ("TRANSACTIONAL_ID tx WRITE", f"GROUP {ONE} READ")


@pytest.mark.parametrize(
    ("key", "version"), [(25, version) for version in range(5)] + [(28, version) for version in range(6)]
)
@pytest.mark.parametrize(
    ("rights", "code"),
    [
        (BOTH, 0),
        (BOTH[:1], 30),
        (BOTH[1:], 53),
        ((BOTH[0], f"GROUP {TWO} READ", "GROUP tx READ"), 30),
        ((f"TRANSACTIONAL_ID {ONE} WRITE", BOTH[1]), 53),
    ],
)
async def test_offsets_of_a_transaction_need_the_right_to_its_id_and_to_read_the_group(
    key: int, version: int, rights: tuple[str, ...], code: int
) -> None:
    async with running(allowing(*rights)) as cluster:
        cluster.slots.set("tx", "2/a")
        client = cluster.client(ALICE)
        ask(client, key, version, of_transaction(key, version, "tx", ONE))
        await settled()
        assert bool(all_sent(cluster)) is (code == 0)
        if code:
            assert set(error_codes(answered(client))) == {code}


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("right", ["TRANSACTIONAL_ID tx WRITE", "CLUSTER kafka-cluster CLUSTER_ACTION"])
async def test_partitions_are_added_by_clients_with_a_right_to_the_id_and_by_brokers_of_the_cluster(
    version: int, right: str
) -> None:
    allowed = right.startswith("TRANSACTIONAL_ID") is (version < 4)
    async with running(allowing(right)) as cluster:
        cluster.slots.set("tx", "2/a")
        client = cluster.client(ALICE)
        ask(client, 24, version, of_transaction(24, version, "tx", ONE))
        await settled()
        assert bool(all_sent(cluster)) is allowed
        if not allowed:
            assert set(error_codes(answered(client))) == {53 if version < 4 else 31}


@pytest.mark.parametrize(("right", "code"), [("WRITE", 0), ("DESCRIBE", 53)])
async def test_a_transaction_is_ended_by_those_who_may_write_with_its_id(right: str, code: int) -> None:
    async with running(allowing(f"TRANSACTIONAL_ID tx {right}")) as cluster:
        cluster.slots.set("tx", "2/a")
        client = cluster.client(ALICE)
        ask(client, 26, 5, of_transaction(26, 5, "tx", ONE))
        await settled()
        assert bool(all_sent(cluster)) is (code == 0)
        if code:
            answer = answered(client)
            assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
