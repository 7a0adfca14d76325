"""The ACL APIs with an authorizer: created once, selected by filters, deleted, bounded; with Kafka's errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import structlog
from kafscale.access.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from kafscale.access.principals import Principal
from kafscale.admin.handlers import create_acls, delete_acls, describe_acls
from kafscale.storage.access_keys import Change, change_txn
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_acls as create_schema
from kafscale.wire.schema import delete_acls as delete_schema
from kafscale.wire.schema import describe_acls as describe_schema

from services.admin.tests.harness import Admin, running

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
OK = (0, "")
LATEST = 3


def acl(
    name: str = "orders",
    operation: int = Operation.READ,
    *,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: int = TOPIC,
    pattern: int = LITERAL,
    permission: int = Permission.ALLOW,
) -> AclBinding:
    return AclBinding(
        resource_type=ResourceType(resource_type),
        pattern_type=PatternType(pattern),
        resource_name=name,
        principal=Principal(principal),
        host=host,
        operation=Operation(operation),
        permission=Permission(permission),
    )


ACLS = (
    acl(),
    acl(operation=Operation.WRITE, permission=Permission.DENY, host="10.0.0.1"),
    acl("or", pattern=PREFIXED, principal="User:*"),
    acl("*", Operation.DESCRIBE, principal="User:bob"),
    acl("bills", resource_type=GROUP),
    acl("kafka-cluster", Operation.CREATE, resource_type=CLUSTER, principal="Team:x:y"),
)


@pytest_asyncio.fixture
async def admin(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Admin]:
    async with running(Admin(etcd, keyspace, {"authorizer": "acl"})) as admin:
        yield admin


async def created(admin: Admin, *acls: AclBinding, version: int = LATEST) -> list[tuple[int, str | None]]:
    creations = [
        create_schema.CreateAclsRequestAclCreation(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            resource_pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in acls
    ]
    request = create_schema.CreateAclsRequest(creations=creations)
    answer = await admin.ask(create_acls, create_schema, request, version)
    return [(each.error_code, each.error_message) for each in answer.results]


def fields_of(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


async def answer_to(admin: Admin, wanted: AclFilter, version: int = LATEST) -> Any:
    request = describe_schema.DescribeAclsRequest(**fields_of(wanted))
    return await admin.ask(describe_acls, describe_schema, request, version)


async def described(admin: Admin, wanted: AclFilter | None = None, version: int = LATEST) -> set[AclBinding]:
    answer = await answer_to(admin, wanted or AclFilter(), version)
    assert (answer.error_code, answer.error_message) == (0, "")
    found = [
        acl(
            resource.resource_name,
            entry.operation,
            principal=entry.principal,
            host=entry.host,
            resource_type=resource.resource_type,
            pattern=resource.pattern_type,
            permission=entry.permission_type,
        )
        for resource in answer.resources
        for entry in resource.acls
    ]
    assert len(set(found)) == len(found)
    patterns = [(each.resource_type, each.pattern_type, each.resource_name) for each in answer.resources]
    assert len(set(patterns)) == len(patterns), "one entry for each pattern"
    return set(found)


async def deleted(admin: Admin, *filters: AclFilter, version: int = LATEST) -> list[set[AclBinding] | int]:
    """For each filter what it deleted, or its error."""
    request = delete_schema.DeleteAclsRequest(
        filters=[delete_schema.DeleteAclsRequestFilter(**fields_of(each)) for each in filters]
    )
    answer = await admin.ask(delete_acls, delete_schema, request, version)
    return [
        each.error_code
        or {
            acl(
                one.resource_name,
                one.operation,
                principal=one.principal,
                host=one.host,
                resource_type=one.resource_type,
                pattern=one.pattern_type,
                permission=one.permission_type,
            )
            for one in each.matching_acls
        }
        for each in answer.filter_results
    ]


async def test_what_was_created_is_described_and_to_create_it_twice_changes_nothing(admin: Admin) -> None:
    assert await created(admin, *ACLS, ACLS[0]) == [OK] * 7
    assert await described(admin) == set(ACLS)
    revision = (await admin.etcd.prefix(admin.access.keys.acls)).kvs[0].mod_revision
    assert await created(admin, *ACLS) == [OK] * 6
    assert (await admin.etcd.prefix(admin.access.keys.acls)).kvs[0].mod_revision == revision


@pytest.mark.parametrize(
    "wanted",
    [
        AclFilter(),
        AclFilter(resource_type=TOPIC),
        AclFilter(pattern_type=PatternType.MATCH, resource_type=TOPIC, resource_name="orders"),
        AclFilter(pattern_type=PREFIXED, resource_name="or"),
        AclFilter(pattern_type=PREFIXED, resource_name="orders"),
        AclFilter(principal="User:*"),
        AclFilter(host="10.0.0.1"),
        AclFilter(operation=Operation.READ, permission=Permission.ALLOW),
        AclFilter(permission=Permission.DENY),
        AclFilter(resource_type=ResourceType.USER),
    ],
)
async def test_a_filter_selects_the_same_for_a_description_and_a_deletion(
    admin: Admin, wanted: AclFilter
) -> None:
    await created(admin, *ACLS)
    selected = {each for each in ACLS if wanted.matches(each)}
    assert await described(admin, wanted) == selected
    assert await deleted(admin, wanted) == [selected]
    assert await described(admin) == set(ACLS) - selected
    assert await deleted(admin, wanted) == [set()]


async def test_an_acl_that_two_filters_select_is_listed_by_both(admin: Admin) -> None:
    await created(admin, *ACLS)
    by_name, by_principal = AclFilter(resource_name="bills"), AclFilter(principal="User:alice")
    first, second, again = await deleted(admin, by_name, by_principal, by_name)
    assert first == again == {ACLS[4]}
    assert second == {ACLS[0], ACLS[1], ACLS[4]}
    assert await described(admin) == set(ACLS) - {ACLS[0], ACLS[1], ACLS[4]}


async def test_version_0_knows_literal_patterns_alone(admin: Admin) -> None:
    await created(admin, *ACLS)
    assert await created(admin, acl("version-0", pattern=LITERAL), version=0) == [OK]
    literal = {each for each in ACLS if each.pattern_type is LITERAL} | {acl("version-0")}
    assert await described(admin, version=0) == literal
    assert await deleted(admin, AclFilter(), version=0) == [literal]
    assert await described(admin) == {ACLS[2]}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (acl(""), "Invalid empty resource name"),
        (acl("x", resource_type=CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (acl(resource_type=1), "Invalid resourceType ANY"),
        (acl(resource_type=99), "Invalid resourceType UNKNOWN"),
        (acl(pattern=PatternType.MATCH), "Invalid patternType MATCH"),
        (acl(operation=Operation.ANY), "Invalid operation ANY"),
        (acl(permission=Permission.ANY), "Invalid permissionType ANY"),
        (
            acl(principal="alice"),
            "Could not parse principal from `alice` "
            "(no colon is present separating the principal type from the principal name)",
        ),
        (acl("n" * 1_025), "A resource name, a principal or a host has more than 1024 characters."),
        (acl(host="h" * 1_025), "A resource name, a principal or a host has more than 1024 characters."),
    ],
)
async def test_what_is_no_acl_is_refused_and_hinders_no_other(
    admin: Admin, wrong: AclBinding, message: str
) -> None:
    assert await created(admin, ACLS[0], wrong, ACLS[1]) == [OK, (ErrorCode.INVALID_REQUEST, message), OK]
    assert await described(admin) == {ACLS[0], ACLS[1]}


@pytest.mark.parametrize(
    "wanted",
    [
        AclFilter(resource_type=ResourceType.UNKNOWN),
        AclFilter(pattern_type=PatternType.UNKNOWN),
        AclFilter(operation=Operation.UNKNOWN),
        AclFilter(permission=Permission.UNKNOWN),
    ],
)
async def test_a_filter_that_kafka_does_not_know_selects_nothing(admin: Admin, wanted: AclFilter) -> None:
    await created(admin, *ACLS)
    answer = await answer_to(admin, wanted)
    assert (answer.error_code, answer.resources) == (ErrorCode.INVALID_REQUEST, [])
    assert await deleted(admin, wanted, AclFilter(resource_name="bills")) == [
        ErrorCode.INVALID_REQUEST,
        {ACLS[4]},
    ]


async def test_more_acls_than_one_transaction_takes_are_created_and_deleted(admin: Admin) -> None:
    many = [acl(f"topic-{number}") for number in range(250)]
    assert await created(admin, *many) == [OK] * 250
    assert await described(admin) == set(many)
    assert await deleted(admin, AclFilter()) == [set(many)]
    assert await described(admin) == set()


async def test_no_more_acls_than_allowed_are_stored(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with running(Admin(etcd, keyspace, {"authorizer": "acl", "acls_max": 2})) as admin:
        assert await created(admin, ACLS[0], ACLS[1], ACLS[0], ACLS[2]) == [
            OK,
            OK,
            OK,
            (ErrorCode.POLICY_VIOLATION, "The cluster may have 2 ACLs (KAFSCALE_ACLS_MAX)."),
        ]
        assert await created(admin, ACLS[1]) == [OK]
        await deleted(admin, AclFilter(host="10.0.0.1"))
        assert await created(admin, ACLS[0], ACLS[2]) == [OK, OK], "one that exists takes no room"


async def test_a_full_etcd_takes_no_new_acl_and_gives_up_old_ones(admin: Admin) -> None:
    await created(admin, ACLS[0])
    admin.space.used_bytes = int(0.7 * admin.space.quota_bytes)
    outcome = await created(admin, ACLS[0], ACLS[1])
    assert [code for code, _ in outcome] == [0, ErrorCode.POLICY_VIOLATION]
    assert await deleted(admin, AclFilter()) == [{ACLS[0]}]


async def test_a_damaged_record_is_not_replaced_not_deleted_and_not_passed_over(admin: Admin) -> None:
    await created(admin, *ACLS)
    key = admin.access.keys.acl(ACLS[0])
    written = await admin.etcd.put(key, b"\xff\xff")
    await admin.access.views["acls"].wait_revision(written.revision, 10)
    answer = await answer_to(admin, AclFilter())
    assert (answer.error_code, answer.resources) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    outcome = await created(admin, ACLS[0], acl("new"))
    assert [code for code, _ in outcome] == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert await deleted(admin, AclFilter(principal="User:alice")) == [{ACLS[1], ACLS[4], acl("new")}]
    kv = await admin.etcd.get(key)
    assert kv is not None
    assert kv.value == b"\xff\xff"


async def test_two_admins_that_delete_the_same_both_succeed(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch of this admin is late."""
    await created(admin, *ACLS)
    await admin.access.confirm()
    monkeypatch.setattr(admin.access.views["acls"], "_apply", lambda batch: None)
    keys, txn = admin.access.keys, admin.etcd.txn
    raced = False

    async def race(*args: Any, **kwargs: Any) -> Any:
        nonlocal raced
        if not raced:
            raced = True
            key = keys.acl(ACLS[0])
            found = await admin.etcd.get(key)
            assert found is not None
            assert (await txn(change_txn(keys.acls, [Change(key, found.mod_revision, None)]))).succeeded
        return await txn(*args, **kwargs)

    monkeypatch.setattr(admin.etcd, "txn", race)
    assert await deleted(admin, AclFilter()) == [set(ACLS)]
    monkeypatch.undo()
    assert await described(admin) == set()


async def test_etcd_away_is_a_timeout(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    await created(admin, *ACLS)

    async def away(*_: Any, **__: Any) -> Any:
        raise EtcdUnknown(UnknownKind.UNAVAILABLE, "away")

    monkeypatch.setattr(admin.etcd, "txn", away)
    assert (await created(admin, acl("new")))[0][0] == ErrorCode.REQUEST_TIMED_OUT
    assert await deleted(admin, AclFilter(), AclFilter(resource_name="x")) == [
        ErrorCode.REQUEST_TIMED_OUT,
        set(),
    ]
    monkeypatch.setattr(admin.etcd, "ranges", away)
    assert (await answer_to(admin, AclFilter())).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert await deleted(admin, AclFilter()) == [ErrorCode.REQUEST_TIMED_OUT]
    monkeypatch.undo()
    assert await described(admin) == set(ACLS)


async def test_an_answer_that_would_be_too_large_is_refused_and_deletes_nothing(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    settings = {"authorizer": "acl", "answer_bytes_max": 1 << 20}
    async with running(Admin(etcd, keyspace, settings)) as admin:
        long = [acl(f"{number}", principal=f"User:{'p' * 1_000}") for number in range(1_000)]
        await created(admin, *long)
        assert (await answer_to(admin, AclFilter())).error_code == ErrorCode.INVALID_REQUEST
        some = AclFilter(resource_name="7")
        assert await deleted(admin, AclFilter(), some) == [ErrorCode.INVALID_REQUEST, {long[7]}]
        assert len(admin.access.stored_acls) in (999, 1_000)
        assert await described(admin, AclFilter(resource_name="8")) == {long[8]}


async def test_too_many_acls_at_once_are_refused(admin: Admin) -> None:
    outcome = await created(admin, *[ACLS[0]] * 10_001)
    assert outcome == [(ErrorCode.INVALID_REQUEST, "A request may have 10000 ACLs at most.")] * 10_001
    assert await described(admin) == set()


async def test_too_many_filters_are_refused(admin: Admin) -> None:
    await created(admin, *ACLS)
    outcome = await deleted(admin, *[AclFilter()] * 1_001)
    assert outcome == [ErrorCode.INVALID_REQUEST] * 1_001
    assert await described(admin) == set(ACLS)


async def test_the_audit_log_has_who_created_and_deleted_which_acl(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with structlog.testing.capture_logs() as logs:
        await created(admin, *ACLS[:2], acl("", principal="User:eve"))
        await deleted(admin, AclFilter(resource_name="orders"), AclFilter(resource_name="absent"))
    lines = [one for one in logs if one["event"] == "altered"]
    assert {(one["principal"], one["host"], one["listener"]) for one in lines} == {
        ("User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    }
    read, write = (
        "TOPIC:LITERAL:orders User:alice * ALLOW READ",
        "TOPIC:LITERAL:orders User:alice 10.0.0.1 DENY WRITE",
    )
    assert [(one["api"], one["change"], one["target"], one["outcome"]) for one in lines[:2]] == [
        ("CreateAcls", "create ACL", read, "NONE"),
        ("CreateAcls", "create ACL", write, "NONE"),
    ]
    assert {(one["api"], one["change"], one["target"], one["outcome"]) for one in lines[2:]} == {
        ("DeleteAcls", "delete ACL", read, "NONE"),
        ("DeleteAcls", "delete ACL", write, "NONE"),
    }

    async def away(*_: Any, **__: Any) -> Any:
        raise EtcdUnknown(UnknownKind.UNAVAILABLE, "away")

    monkeypatch.setattr(admin.etcd, "txn", away)
    with structlog.testing.capture_logs() as logs:
        await created(admin, ACLS[0])
    assert [one["outcome"] for one in logs if one["event"] == "altered"] == ["REQUEST_TIMED_OUT"]
