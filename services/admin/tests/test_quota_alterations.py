"""Quotas are set and removed with Kafka's errors: merged with those that are stored, checked together, and bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafscale.access.quota import Default, QuotaEntity, QuotaKey
from kafscale.admin.handlers import alter_client_quotas
from kafscale.admin.quota_alterations import ENTRIES_MAX
from kafscale.storage.access_records import decode_quotas
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_client_quotas as api

from services.admin.tests.harness import Admin, running

ALICE = {"user": "alice"}
ALICES_APP = {"user": "alice", "client-id": "app"}
ADDRESS = {"ip": "10.0.0.1"}
OK = (0, None)
Names = dict[str, str | None]
Op = tuple[str, float | None]


def entry(names: Names, *ops: Op) -> api.AlterClientQuotasRequestEntry:
    """A value of None removes the quota."""
    return api.AlterClientQuotasRequestEntry(
        entity=[api.AlterClientQuotasRequestEntity(*name) for name in names.items()],
        ops=[
            api.AlterClientQuotasRequestOp(key=key, value=value or 0.0, remove=value is None)
            for key, value in ops
        ],
    )


async def altered(
    admin: Admin, *entries: api.AlterClientQuotasRequestEntry, only: bool = False, version: int = 1
) -> list[tuple[int, str | None]]:
    """The results in the order of the entities' names."""
    request = api.AlterClientQuotasRequest(entries=list(entries), validate_only=only)
    answer = await admin.ask(alter_client_quotas, api, request, version)
    found = {
        tuple(sorted((part.entity_type, part.entity_name or "") for part in each.entity)): (
            each.error_code,
            each.error_message,
        )
        for each in answer.entries
    }
    assert len(found) == len(answer.entries)
    return [found[name] for name in sorted(found)]


async def stored(admin: Admin, entity: QuotaEntity) -> dict[str, float] | None:
    found = await admin.etcd.get(admin.access.keys.quota(entity))
    return None if found is None else {k.value: v for k, v in decode_quotas(entity, found.value).items()}


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_changed_and_removed_one_by_one(admin: Admin, version: int) -> None:
    entity = QuotaEntity(user="alice", client_id=Default.DEFAULT)
    names: Names = {"user": "alice", "client-id": None}
    first = entry(names, ("producer_byte_rate", 1_000.0), ("request_percentage", 12.5))
    assert await altered(admin, first, version=version) == [OK]
    assert await stored(admin, entity) == {"producer_byte_rate": 1_000.0, "request_percentage": 12.5}
    second = entry(names, ("producer_byte_rate", 2_000.0), ("request_percentage", None))
    assert await altered(admin, second, version=version) == [OK]
    assert await stored(admin, entity) == {"producer_byte_rate": 2_000.0}
    assert await altered(admin, entry(names, ("producer_byte_rate", None)), version=version) == [OK]
    assert await stored(admin, entity) is None


async def test_the_view_has_the_change_after_a_confirmation(admin: Admin) -> None:
    assert await altered(admin, entry(ADDRESS, ("connection_creation_rate", 7.0))) == [OK]
    await admin.access.confirm()
    assert admin.access.quotas.connection_rate("10.0.0.1") == 7.0


async def test_what_is_only_validated_is_not_stored(admin: Admin) -> None:
    good, bad = entry(ALICE, ("producer_byte_rate", 1.0)), entry(ALICES_APP, ("producer_byte_rate", -1.0))
    wrong = (ErrorCode.INVALID_REQUEST, "Quota producer_byte_rate must be greater than 0")
    assert await altered(admin, good, bad, only=True) == [wrong, OK]
    assert await stored(admin, QuotaEntity(user="alice")) is None


@pytest.mark.parametrize(
    ("names", "ops", "message"),
    [
        ({}, [], "Invalid empty client quota entity"),
        ({"host": "a"}, [], "Unhandled client quota entity type: host"),
        ({"user": ""}, [], "Empty user not supported"),
        (
            {"ip": "10.0.0.1", "user": "alice"},
            [],
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"ip": "example"}, [], "example is not a valid IP or resolvable host."),
        ({"user": "a" * 1_025}, [], "The name of an entity has more than 1024 characters"),
        (ALICE, [("nonsense", 1.0)], "Invalid configuration key nonsense"),
        (
            ALICE,
            [("connection_creation_rate", 1.0)],
            "Invalid configuration key connection_creation_rate",
        ),
        (ADDRESS, [("producer_byte_rate", 1.0)], "Invalid configuration key producer_byte_rate"),
        (ALICE, [("producer_byte_rate", 1.5)], "producer_byte_rate cannot be a fractional value."),
        (
            ALICES_APP,
            [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)],
            "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=app, user=alice})",
        ),
    ],
)
async def test_what_kafka_refuses_is_refused_with_its_message(
    admin: Admin, names: Names, ops: list[Op], message: str
) -> None:
    other = entry({"user": "zoe"}, ("consumer_byte_rate", 5.0))
    results = await altered(admin, entry(names, *ops), other)
    assert sorted(results, key=str) == sorted([(ErrorCode.INVALID_REQUEST, message), OK], key=str)
    assert await stored(admin, QuotaEntity(user="zoe")) == {"consumer_byte_rate": 5.0}


async def test_an_entity_named_twice_is_changed_by_its_first_entry_and_answered_with_an_error(
    admin: Admin,
) -> None:
    twice = [entry({"user": None}, ("producer_byte_rate", value)) for value in (1.0, 2.0)]
    sentence = "Ignoring duplicate entity ClientQuotaEntity(entries={user=null})"
    assert await altered(admin, *twice) == [(ErrorCode.INVALID_REQUEST, sentence)]
    assert await stored(admin, QuotaEntity(user=Default.DEFAULT)) == {"producer_byte_rate": 1.0}


async def test_removing_what_is_not_there_is_no_error(admin: Admin) -> None:
    results = await altered(admin, entry(ALICE, ("producer_byte_rate", None), ("nonsense", None)))
    assert results == [OK]
    assert await stored(admin, QuotaEntity(user="alice")) is None


async def test_quotas_that_are_set_at_the_same_time_are_all_stored(admin: Admin) -> None:
    keys = [key.value for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE]
    results = await asyncio.gather(*(altered(admin, entry(ALICE, (key, 3.0))) for key in keys))
    assert results == [[OK]] * len(keys)
    assert await stored(admin, QuotaEntity(user="alice")) == dict.fromkeys(keys, 3.0)


async def test_a_damaged_record_is_neither_replaced_nor_deleted(admin: Admin) -> None:
    key = admin.access.keys.quota(QuotaEntity(user="alice"))
    await admin.etcd.put(key, b"\xff")
    for value in (1.0, None):
        ((code, _),) = await altered(admin, entry(ALICE, ("producer_byte_rate", value)))
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
    kept = await admin.etcd.get(key)
    assert kept is not None
    assert kept.value == b"\xff"


async def test_the_number_of_entities_is_bounded_but_known_ones_can_be_changed(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(Admin(etcd, keyspace, {"quotas_max": 1})) as admin:
        rate = ("producer_byte_rate", 1.0)
        assert await altered(admin, entry(ALICE, rate)) == [OK]
        ((code, message),) = await altered(admin, entry(ALICES_APP, rate))
        assert code == ErrorCode.POLICY_VIOLATION
        assert "KAFSCALE_QUOTAS_MAX" in str(message)
        assert await altered(admin, entry(ALICE, ("producer_byte_rate", 9.0))) == [OK]


async def test_too_many_entities_at_once_are_refused(admin: Admin) -> None:
    names: list[Names] = [{"user": f"u{number}"} for number in range(ENTRIES_MAX + 1)]
    results = await altered(admin, *(entry(one, ("producer_byte_rate", 1.0)) for one in names))
    assert {code for code, _ in results} == {ErrorCode.INVALID_REQUEST}
    assert await stored(admin, QuotaEntity(user="u0")) is None


async def test_more_entities_than_one_transaction_takes_are_all_set(admin: Admin) -> None:
    names: list[Names] = [{"user": f"u{number}"} for number in range(250)]
    results = await altered(admin, *(entry(one, ("producer_byte_rate", 1.0)) for one in names))
    assert results == [OK] * 250
    assert await stored(admin, QuotaEntity(user="u249")) == {"producer_byte_rate": 1.0}


async def test_etcd_away_is_a_timeout(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise EtcdUnknown(UnknownKind.UNAVAILABLE, "away")

    monkeypatch.setattr(admin.etcd, "ranges", away)
    ((code, _),) = await altered(admin, entry(ALICE, ("producer_byte_rate", 1.0)))
    assert code == ErrorCode.REQUEST_TIMED_OUT
