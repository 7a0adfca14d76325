"""The options of `kafscale acls` make the ACLs that kafka-acls makes of them."""

from __future__ import annotations

import pytest
from kafscale.access.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from kafscale.access.principals import Principal
from kafscale.client.acl_options import (
    Entries,
    Resources,
    WrongOptions,
    bindings_of,
    filters_of,
    filters_to_remove,
    operation_named,
)

ALICE = ("User:alice",)
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def made(
    resources: Resources, entries: Entries
) -> set[tuple[ResourceType, str, str, str, Operation, Permission]]:
    acls = bindings_of(resources, entries)
    assert len(set(acls)) == len(acls)
    return {
        (acl.resource_type, acl.resource_name, acl.principal, acl.host, acl.operation, acl.permission)
        for acl in acls
    }


def test_each_combination_is_an_acl_and_each_only_once() -> None:
    entries = Entries(
        allow_principals=("User:alice", "User:alice"),
        deny_principals=("User:*",),
        deny_hosts=("10.0.0.1", "10.0.0.2"),
        operations=("read", "Write"),
    )
    allow, deny = Permission.ALLOW, Permission.DENY
    read, write = Operation.READ, Operation.WRITE
    assert made(Resources(topics=("a", "b")), entries) == {
        (TOPIC, name, who, host, operation, permission)
        for name in "ab"
        for operation in (read, write)
        for who, host, permission in (
            ("User:alice", "*", allow),
            ("User:*", "10.0.0.1", deny),
            ("User:*", "10.0.0.2", deny),
        )
    }


def test_without_operations_it_is_all_of_them() -> None:
    (acl,) = bindings_of(
        Resources(groups=("g",), pattern=PatternType.PREFIXED), Entries(allow_principals=ALICE)
    )
    assert acl == AclBinding(
        resource_type=GROUP,
        pattern_type=PatternType.PREFIXED,
        resource_name="g",
        principal=Principal("User:alice"),
        host="*",
        operation=Operation.ALL,
        permission=Permission.ALLOW,
    )


def test_the_cluster_has_one_name_and_no_prefix() -> None:
    (acl,) = bindings_of(
        Resources(cluster=True, pattern=PatternType.PREFIXED), Entries(allow_principals=ALICE)
    )
    assert (acl.resource_name, acl.pattern_type) == ("kafka-cluster", PatternType.LITERAL)


def test_a_producer_and_a_consumer_get_what_they_need() -> None:
    producer = Entries(allow_principals=ALICE, producer=True)
    found = made(Resources(topics=("t",), transactional_ids=("x",)), producer)
    assert {(kind.name, operation.name) for kind, _, _, _, operation, _ in found} == {
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
    }
    consumer = Entries(allow_principals=ALICE, consumer=True)
    found = made(Resources(topics=("t",), groups=("g",)), consumer)
    assert {(kind.name, operation.name) for kind, _, _, _, operation, _ in found} == {
        ("TOPIC", "READ"),
        ("TOPIC", "DESCRIBE"),
        ("GROUP", "READ"),
    }


@pytest.mark.parametrize(
    ("resources", "entries", "sentence"),
    [
        (Resources(), Entries(allow_principals=ALICE), "name a resource"),
        (Resources(topics=("t",)), Entries(), "name who"),
        (Resources(topics=("t",)), Entries(operations=("read",)), "name who"),
        (Resources(topics=("t",)), Entries(allow_principals=("alice",)), "form User:name, not alice"),
        (
            Resources(topics=("t",)),
            Entries(deny_principals=ALICE, allow_hosts=("h",)),
            "--allow-host needs --allow-principal",
        ),
        (
            Resources(topics=("t",)),
            Entries(allow_principals=ALICE, deny_hosts=("h",)),
            "--deny-host needs --deny-principal",
        ),
        (
            Resources(topics=("t",), pattern=PatternType.MATCH),
            Entries(allow_principals=ALICE),
            "literal or prefixed",
        ),
        (
            Resources(groups=("g",)),
            Entries(allow_principals=ALICE, operations=("write",)),
            "a group has no operation write; it has alter_configs, delete, describe, describe_configs, read",
        ),
        (
            Resources(topics=("t",)),
            Entries(allow_principals=ALICE, operations=("fly",)),
            "there is no operation fly",
        ),
        (
            Resources(topics=("t",)),
            Entries(allow_principals=ALICE, producer=True, operations=("read",)),
            "leave out --operation",
        ),
        (
            Resources(topics=("t",)),
            Entries(allow_principals=ALICE, consumer=True),
            "--consumer needs --topic and --group",
        ),
        (
            Resources(groups=("g",)),
            Entries(allow_principals=ALICE, producer=True),
            "--producer needs --topic",
        ),
    ],
)
def test_contradictions_are_refused(resources: Resources, entries: Entries, sentence: str) -> None:
    with pytest.raises(WrongOptions, match=sentence):
        bindings_of(resources, entries)


def test_what_was_added_is_what_is_removed() -> None:
    resources = Resources(topics=("t",), groups=("g",))
    entries = Entries(allow_principals=ALICE, operations=("read",), allow_hosts=("10.0.0.1",))
    acls = bindings_of(resources, entries)
    filters = filters_to_remove(resources, entries)
    assert [[each.matches(acl) for acl in acls] for each in filters] == [[True, False], [False, True]]
    other = bindings_of(resources, Entries(allow_principals=ALICE, operations=("describe",)))
    assert not any(each.matches(acl) for each in filters for acl in other)


def test_without_a_principal_all_acls_of_the_resources_are_removed() -> None:
    filters = filters_to_remove(Resources(topics=("t",)), Entries())
    assert filters == [AclFilter(resource_type=TOPIC, pattern_type=PatternType.LITERAL, resource_name="t")]
    with pytest.raises(WrongOptions, match="name a resource"):
        filters_to_remove(Resources(), Entries(allow_principals=ALICE))


def test_a_list_is_of_everything_or_of_what_is_named() -> None:
    assert filters_of(Resources()) == [AclFilter()]
    assert filters_of(Resources(), ("User:a", "User:b")) == [
        AclFilter(principal="User:a"),
        AclFilter(principal="User:b"),
    ]
    named = filters_of(Resources(topics=("t",), pattern=PatternType.MATCH), ALICE)
    assert named == [
        AclFilter(
            resource_type=TOPIC, pattern_type=PatternType.MATCH, resource_name="t", principal="User:alice"
        )
    ]


@pytest.mark.parametrize(
    "text", ["DescribeConfigs", "describe_configs", "describe-configs", "DESCRIBE_CONFIGS"]
)
def test_an_operation_may_be_written_in_many_ways(text: str) -> None:
    assert operation_named(text) is Operation.DESCRIBE_CONFIGS


@pytest.mark.parametrize("text", ["", "any", "unknown"])
def test_words_of_filters_are_no_operations(text: str) -> None:
    with pytest.raises(WrongOptions):
        operation_named(text)
