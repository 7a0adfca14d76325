"""Stored quotas are described: those that a filter selects, none of which is missing."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.access.quota import Default, QuotaEntity, QuotaKey
from kafscale.admin.handlers import describe_client_quotas
from kafscale.storage.access_keys import Change, change_txn
from kafscale.storage.access_records import encode_quotas
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_client_quotas as api

from services.admin.tests.harness import Admin, running

EXACT, DEFAULT, SPECIFIED = range(3)
ALICE = QuotaEntity(user="alice")
ALICES_APP = QuotaEntity(user="alice", client_id="app")
ALICES_DEFAULT = QuotaEntity(user="alice", client_id=Default.DEFAULT)
EVERYBODY = QuotaEntity(user=Default.DEFAULT)
APP = QuotaEntity(client_id="app")
ADDRESS = QuotaEntity(ip="10.0.0.1")
STORED = (ALICE, ALICES_APP, ALICES_DEFAULT, EVERYBODY, APP, ADDRESS)
RATE = {QuotaKey.PRODUCER_BYTE_RATE: 1_024.0, QuotaKey.REQUEST_PERCENTAGE: 12.5}
Names = tuple[tuple[str, str | None], ...]


async def store(admin: Admin, *entities: QuotaEntity) -> None:
    keys = admin.access.keys
    changes = [
        Change(
            keys.quota(entity),
            0,
            encode_quotas(RATE if entity.ip is None else {QuotaKey.CONNECTION_CREATION_RATE: 7.0}),
        )
        for entity in entities
    ]
    assert (await admin.etcd.txn(change_txn(keys.quotas, changes))).succeeded


async def answer_to(admin: Admin, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = api.DescribeClientQuotasRequest(
        components=[api.DescribeClientQuotasRequestComponent(*each) for each in components], strict=strict
    )
    return await admin.ask(describe_client_quotas, api, request, 1)


async def described(
    admin: Admin, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[Names, dict[str, float]]:
    answer = await answer_to(admin, *components, strict=strict)
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def names(*entities: QuotaEntity) -> set[Names]:
    """With the parts in the order of Kafka's answers."""

    def shown(name: Any) -> str | None:
        return None if name is Default.DEFAULT else str(name)

    return {
        tuple(
            (kind, shown(name))
            for kind, name in (("ip", entity.ip), ("client-id", entity.client_id), ("user", entity.user))
            if name is not None
        )
        for entity in entities
    }


@pytest.mark.parametrize(
    ("components", "strict", "selected"),
    [
        ((), False, STORED),
        ((), True, ()),
        ((("user", EXACT, "alice"),), False, (ALICE, ALICES_APP, ALICES_DEFAULT)),
        ((("user", EXACT, "alice"),), True, (ALICE,)),
        ((("user", EXACT, "bob"),), False, ()),
        ((("user", DEFAULT, None),), False, (EVERYBODY,)),
        ((("user", SPECIFIED, None),), False, (ALICE, ALICES_APP, ALICES_DEFAULT, EVERYBODY)),
        ((("user", SPECIFIED, None),), True, (ALICE, EVERYBODY)),
        ((("client-id", EXACT, "app"),), False, (ALICES_APP, APP)),
        ((("user", EXACT, "alice"), ("client-id", DEFAULT, None)), True, (ALICES_DEFAULT,)),
        ((("user", SPECIFIED, None), ("client-id", SPECIFIED, None)), False, (ALICES_APP, ALICES_DEFAULT)),
        ((("ip", SPECIFIED, None),), False, (ADDRESS,)),
    ],
)
async def test_a_filter_selects_the_entities_that_have_its_parts(
    admin: Admin,
    components: tuple[tuple[str, int, str | None], ...],
    strict: bool,
    selected: tuple[QuotaEntity, ...],
) -> None:
    await store(admin, *STORED)
    assert set(await described(admin, *components, strict=strict)) == names(*selected)


async def test_an_unknown_type_of_entity_is_refused_as_in_kafka(admin: Admin) -> None:
    answer = await answer_to(admin, ("nonsense", SPECIFIED, None))
    assert (answer.error_code, answer.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)
    assert answer.error_message == "Unsupported entity type nonsense"


async def test_the_values_come_in_the_order_of_kafkas_answers(admin: Admin) -> None:
    keys = [key for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE]
    change = Change(admin.access.keys.quota(ALICE), 0, encode_quotas(dict.fromkeys(reversed(keys), 1.0)))
    assert (await admin.etcd.txn(change_txn(admin.access.keys.quotas, [change]))).succeeded
    (values,) = (await described(admin)).values()
    assert list(values) == [
        "producer_byte_rate",
        "consumer_byte_rate",
        "controller_mutation_rate",
        "request_percentage",
    ]


async def test_the_values_are_those_that_are_set(admin: Admin) -> None:
    await store(admin, ALICE, ADDRESS)
    assert await described(admin) == {
        (("user", "alice"),): {"producer_byte_rate": 1_024.0, "request_percentage": 12.5},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 7.0},
    }


async def test_a_list_that_would_lack_a_quota_is_refused(admin: Admin) -> None:
    await store(admin, *STORED)
    written = await admin.etcd.put(admin.access.keys.quota(APP), b"\xff")
    await admin.access.views["quotas"].wait_revision(written.revision, 10)
    answer = await answer_to(admin)
    assert (answer.error_code, answer.entries) == (ErrorCode.KAFKA_STORAGE_ERROR, None)


async def test_etcd_away_is_a_timeout(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise EtcdUnknown(UnknownKind.UNAVAILABLE, "away")

    monkeypatch.setattr(admin.etcd, "ranges", away)
    assert (await answer_to(admin)).error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_an_answer_that_would_be_too_large_is_refused(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with running(Admin(etcd, keyspace, {"answer_bytes_max": 1 << 20})) as admin:
        users = [QuotaEntity(user=f"{number}{'n' * 10_000}") for number in range(120)]
        await store(admin, *users[:60])
        await store(admin, *users[60:])
        answer = await answer_to(admin)
        assert (answer.error_code, answer.entries) == (ErrorCode.INVALID_REQUEST, None)
        assert len(await described(admin, ("user", EXACT, users[7].user))) == 1  # type: ignore[arg-type]
