"""The authorizer gives StandardAuthorizer's verdicts, and remembers them only while they are true."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from access_values import (
    HOSTS,
    NAMES,
    OPERATIONS,
    PRINCIPALS,
    TYPES,
    bindings,
    drawn_binding,
    operations,
)
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access import authorizer as module
from kafscale.access.acl import AclBinding, AclFilter, Operation, ResourceType
from kafscale.access.acl_index import AclIndex
from kafscale.access.authorizer import Authorizer, Rights, Rule
from kafscale.access.principals import Principal, user
from kafscale.testkit.acls import acl
from naive_authorizer import NaiveAuthorizer

ALICE, BOB = PRINCIPALS[0], PRINCIPALS[1]
HOST = "10.0.0.1"
TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def rights(
    *acls: AclBinding, principal: Principal = ALICE, host: str = HOST, default: bool = False
) -> Rights:
    return Authorizer(AclIndex(acls), allow_everyone_if_no_acl_found=default).rights(principal, host)


VERDICTS = [
    ([], READ, "orders", False),
    (["TOPIC:LITERAL:orders READ"], READ, "orders", True),
    (["TOPIC:LITERAL:orders READ"], READ, "orders2", False),
    (["TOPIC:LITERAL:orders READ"], WRITE, "orders", False),
    (["TOPIC:LITERAL:orders READ"], DESCRIBE, "orders", True),
    (["TOPIC:LITERAL:orders DELETE"], DESCRIBE, "orders", True),
    (["TOPIC:LITERAL:orders CREATE"], DESCRIBE, "orders", False),
    (["TOPIC:LITERAL:orders ALTER_CONFIGS"], Operation.DESCRIBE_CONFIGS, "orders", True),
    (["TOPIC:LITERAL:orders ALTER_CONFIGS"], DESCRIBE, "orders", False),
    (["TOPIC:LITERAL:orders"], Operation.TWO_PHASE_COMMIT, "orders", True),
    (["TOPIC:PREFIXED:or READ"], READ, "orders", True),
    (["TOPIC:PREFIXED:orders READ"], READ, "orders", True),
    (["TOPIC:PREFIXED:orders2 READ"], READ, "orders", False),
    (["TOPIC:LITERAL:* READ"], READ, "orders", True),
    (["TOPIC:PREFIXED:* READ"], READ, "orders", False),
    (["TOPIC:PREFIXED:* READ"], READ, "*orders", True),
    (["GROUP:LITERAL:orders READ"], READ, "orders", False),
    (["TOPIC:LITERAL:orders READ", "!TOPIC:LITERAL:* READ"], READ, "orders", False),
    (["TOPIC:LITERAL:orders READ", "!TOPIC:PREFIXED:o"], DESCRIBE, "orders", False),
    (["TOPIC:LITERAL:orders WRITE", "!TOPIC:LITERAL:orders READ"], DESCRIBE, "orders", True),
    (["TOPIC:LITERAL:orders WRITE", "!TOPIC:LITERAL:orders READ"], WRITE, "orders", True),
]


@pytest.mark.parametrize(("texts", "operation", "name", "allowed"), VERDICTS)
def test_verdicts(texts: list[str], operation: Operation, name: str, allowed: bool) -> None:
    acls = [acl(text.lstrip("!"), deny=text.startswith("!")) for text in texts]
    assert rights(*acls).allows(operation, TOPIC, name) is allowed


def test_principal_and_host_are_compared_as_text() -> None:
    assert not rights(acl(principal="User:bob")).allows(READ, TOPIC, "orders")
    assert rights(acl(principal="User:*")).allows(READ, TOPIC, "orders")
    assert rights(acl(principal="User:*"), principal=Principal("Team:alice")).allows(READ, TOPIC, "orders")
    assert not rights(acl(), principal=Principal("Team:alice")).allows(READ, TOPIC, "orders")
    assert not rights(acl(host="10.0.0.2")).allows(READ, TOPIC, "orders")
    assert rights(acl(host=HOST)).allows(READ, TOPIC, "orders")
    assert not rights(acl(host="::1"), host="0:0:0:0:0:0:0:1").allows(READ, TOPIC, "orders")


def test_an_acl_on_every_resource_applies_to_names_that_begin_with_a_star() -> None:
    """Kafka 4.3.1 misses it: see the module. With the default ALLOW, a client could step around a DENY by the name."""
    mine = rights(acl("GROUP:LITERAL:* READ", principal="User:*", deny=True), default=True)
    assert not mine.allows(READ, ResourceType.GROUP, "*a")


def test_the_default_is_for_resources_without_an_acl_of_anybody() -> None:
    assert rights(default=True).allows(READ, TOPIC, "orders")
    for other in ("TOPIC:LITERAL:orders WRITE", "TOPIC:PREFIXED:o WRITE", "TOPIC:LITERAL:* WRITE"):
        mine = rights(acl(other, principal="User:bob"), default=True)
        assert not mine.allows(READ, TOPIC, "orders")
        assert mine.allows(READ, ResourceType.GROUP, "orders")


def test_a_super_user_is_allowed_before_any_deny() -> None:
    index = AclIndex([acl(deny=True), acl("TOPIC:LITERAL:*", principal="User:*", deny=True)])
    mine = Authorizer(index, super_users={ALICE}).rights(ALICE, HOST)
    assert mine.allows(READ, TOPIC, "orders")
    assert mine.allows_any(WRITE, TOPIC)
    assert mine.explain(READ, TOPIC, "orders").rule is Rule.SUPER_USER


def agrees(
    acls: frozenset[AclBinding],
    default: bool,
    questions: list[tuple[Principal, str, Operation, ResourceType, str]],
) -> None:
    """Every way to ask gives the verdict of the naive authorizer."""
    supers = {user("root")}
    ours = Authorizer(AclIndex(acls), super_users=supers, allow_everyone_if_no_acl_found=default)
    naive = NaiveAuthorizer(acls, supers, default)
    for principal, host, operation, type_, name in questions:
        mine = ours.rights(principal, host)
        expected = naive.allows(principal, host, operation, type_, name)
        assert mine.allows(operation, type_, name) is expected
        assert mine.explain(operation, type_, name).allowed is expected
        assert mine.allows_any(operation, type_) is naive.allows_any(principal, host, operation, type_)


def test_ten_thousand_random_acl_sets_give_the_verdicts_of_the_naive_authorizer() -> None:
    chance = Random(20)
    for _ in range(10_000):
        acls = frozenset(drawn_binding(chance) for _ in range(chance.randrange(12)))
        questions = [
            (
                chance.choice([*PRINCIPALS, user("root")]),
                chance.choice(HOSTS[1:]),
                chance.choice(OPERATIONS[1:]),
                chance.choice(TYPES),
                chance.choice([*NAMES, "abcd"]),
            )
            for _ in range(6)
        ]
        agrees(acls, chance.random() < 0.3, questions)


@given(
    st.frozensets(bindings, max_size=8),
    st.booleans(),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS[1:]),
    operations,
    st.sampled_from(NAMES),
)
def test_any_acl_set_gives_the_verdicts_of_the_naive_authorizer(
    acls: frozenset[AclBinding],
    default: bool,
    principal: Principal,
    host: str,
    operation: Operation,
    name: str,
) -> None:
    agrees(acls, default, [(principal, host, operation, TOPIC, name)])


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=30),
    st.lists(bindings, min_size=6, max_size=6),
)
def test_the_index_follows_additions_and_removals(
    steps: list[tuple[bool, int]], drawn: list[AclBinding]
) -> None:
    index, held = AclIndex(), set[AclBinding]()
    authorizer = Authorizer(index)
    for added, which in steps:
        binding = drawn[which]
        generation, changed = index.generation, (binding in held) is not added
        (index.add if added else index.remove)(binding)
        (held.add if added else held.discard)(binding)
        assert (index.generation != generation) is changed
        assert (len(index), set(index)) == (len(held), held)
        mine, naive = authorizer.rights(ALICE, HOST), NaiveAuthorizer(held)
        for type_, name in product(TYPES, NAMES):
            operation = binding.operation
            assert mine.allows(operation, type_, name) is naive.allows(ALICE, HOST, operation, type_, name)
        assert mine.allows_any(WRITE, TOPIC) is naive.allows_any(ALICE, HOST, WRITE, TOPIC)
    for binding in set(held):
        index.remove(binding)
    assert all(_empty(index, type_) for type_ in TYPES)


def _empty(index: AclIndex, type_: ResourceType) -> bool:
    """An index without ACLs keeps nothing."""
    kept = index._types[type_]
    return not (kept.literal or kept.prefixed or kept.lengths or kept.by_principal)


def test_the_verdict_says_which_acl_or_default_has_decided() -> None:
    allow, deny = acl("TOPIC:LITERAL:orders READ"), acl("TOPIC:LITERAL:orders WRITE", deny=True)
    mine = rights(allow, deny)
    assert mine.explain(READ, TOPIC, "orders").acl == allow
    assert mine.explain(DESCRIBE, TOPIC, "orders").acl == allow
    assert mine.explain(WRITE, TOPIC, "orders").acl == deny
    assert mine.explain(Operation.ALTER, TOPIC, "orders").rule is Rule.DEFAULT_DENY
    assert rights().explain(READ, TOPIC, "orders").rule is Rule.DEFAULT_DENY
    assert rights(default=True).explain(READ, TOPIC, "orders").rule is Rule.DEFAULT_ALLOW


def test_an_acl_of_the_operation_itself_explains_it_before_one_that_implies_it() -> None:
    itself = acl("TOPIC:LITERAL:orders DESCRIBE")
    mine = rights(acl("TOPIC:LITERAL:orders READ"), itself)
    assert mine.explain(DESCRIBE, TOPIC, "orders").acl == itself


def test_what_is_remembered_is_dropped_when_the_acls_change() -> None:
    index = AclIndex()
    mine = Authorizer(index).rights(ALICE, HOST)
    assert not mine.allows(READ, TOPIC, "orders")
    assert not mine.allows_any(READ, TOPIC)
    index.add(acl())
    assert mine.allows(READ, TOPIC, "orders")
    assert mine.allows_any(READ, TOPIC)
    assert mine.authorized_operations(TOPIC, "orders")
    index.remove(acl())
    assert not mine.authorized_operations(TOPIC, "orders")
    assert not mine.allows(READ, TOPIC, "orders")
    assert not mine.allows_any(READ, TOPIC)


def test_what_is_remembered_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES_MAX", 3)
    monkeypatch.setattr(module, "RIGHTS_MAX", 2)
    authorizer = Authorizer(AclIndex([acl("TOPIC:PREFIXED:orders READ")]))
    mine = authorizer.rights(ALICE, HOST)
    assert authorizer.rights(ALICE, HOST) is mine
    for number in range(10):
        assert mine.allows(READ, TOPIC, f"orders{number}")
    assert len(mine) == 3
    other = authorizer.rights(BOB, HOST)
    assert not other.allows(READ, TOPIC, "x" * 250)
    assert not other.allows(READ, TOPIC, "x" * 249)
    assert len(other) == 1
    for number in range(10):
        authorizer.rights(user(str(number)), HOST)
    assert len(authorizer) == 2


AUTHORIZED = [
    (["CLUSTER:LITERAL:kafka-cluster ALTER"], ResourceType.CLUSTER, "kafka-cluster", "ALTER DESCRIBE"),
    (["CLUSTER:LITERAL:kafka-cluster CREATE"], ResourceType.CLUSTER, "kafka-cluster", ""),
    (["TOPIC:LITERAL:orders READ"], TOPIC, "orders", "READ DESCRIBE"),
    (["GROUP:PREFIXED:g"], ResourceType.GROUP, "g1", "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS"),
    (
        ["TRANSACTIONAL_ID:LITERAL:t"],
        ResourceType.TRANSACTIONAL_ID,
        "t",
        "DESCRIBE WRITE TWO_PHASE_COMMIT",
    ),
    ([], TOPIC, "orders", ""),
]


@pytest.mark.parametrize(("texts", "type_", "name", "expected"), AUTHORIZED)
def test_authorized_operations_are_the_allowed_ones_that_the_type_has(
    texts: list[str], type_: ResourceType, name: str, expected: str
) -> None:
    field = rights(*map(acl, texts)).authorized_operations(type_, name)
    assert {operation.name for operation in Operation if field >> operation & 1} == set(expected.split())


ANY = [
    (["TOPIC:LITERAL:orders WRITE"], True),
    (["TOPIC:PREFIXED:orders WRITE"], True),
    (["TOPIC:LITERAL:orders READ"], False),
    (["TOPIC:LITERAL:orders ALL"], True),
    (["TOPIC:LITERAL:orders WRITE", "!TOPIC:LITERAL:orders WRITE"], False),
    (["TOPIC:LITERAL:orders WRITE", "!TOPIC:PREFIXED:ord WRITE"], False),
    (["TOPIC:PREFIXED:orders WRITE", "!TOPIC:LITERAL:orders WRITE"], True),
    (["TOPIC:PREFIXED:orders WRITE", "!TOPIC:PREFIXED:orders WRITE"], False),
    (["TOPIC:LITERAL:orders WRITE", "!TOPIC:LITERAL:* WRITE"], False),
    (["TOPIC:LITERAL:* WRITE", "!TOPIC:PREFIXED:o WRITE"], True),
]


@pytest.mark.parametrize(("texts", "allowed"), ANY)
def test_the_question_about_any_topic(texts: list[str], allowed: bool) -> None:
    acls = [acl(text.lstrip("!"), deny=text.startswith("!")) for text in texts]
    assert rights(*acls).allows_any(WRITE, TOPIC) is allowed


def test_a_lookup_does_not_look_at_the_acls_of_other_names() -> None:
    others = [
        acl(f"TOPIC:{kind}:{'n' * 20}{number:05}")
        for number in range(2_000)
        for kind in ("LITERAL", "PREFIXED")
    ]
    index = AclIndex([*others, acl("TOPIC:PREFIXED:ord READ")])
    assert len(list(index.patterns(TOPIC, "orders"))) == 1
    assert set(index._types[TOPIC].lengths) == {3, 25}
    assert index.matching(AclFilter(resource_name="ord")) == [acl("TOPIC:PREFIXED:ord READ")]
