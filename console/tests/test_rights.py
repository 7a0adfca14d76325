"""A right that is not known is not given."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.access.acl_index import AclIndex
from kafscale.access.authorizer import Authorizer
from kafscale.access.principals import ANY_HOST, Principal
from kafscale.console.rights import (
    KEPT_S,
    Held,
    KnownRights,
    describable_groups,
    on_cluster,
    on_topic,
)

ORDERS = (ResourceType.TOPIC, "orders")
SECRET = (ResourceType.TOPIC, "secret")


def test_only_what_the_front_door_said_is_allowed_and_only_for_a_while() -> None:
    rights = KnownRights()
    assert not rights.allows(ORDERS, Operation.READ, 0)
    rights.learn({ORDERS: frozenset({Operation.READ}), SECRET: frozenset()}, 0)
    assert rights.allows(ORDERS, Operation.READ, KEPT_S - 1)
    assert not rights.allows(ORDERS, Operation.WRITE, 1)
    assert not rights.allows(SECRET, Operation.READ, 1)
    assert not rights.allows((ResourceType.GROUP, "orders"), Operation.READ, 1)
    assert not rights.allows(ORDERS, Operation.READ, KEPT_S)
    assert rights.unknown([ORDERS, SECRET, ORDERS], KEPT_S) == [ORDERS, SECRET]


def test_what_is_learned_later_counts() -> None:
    rights = KnownRights()
    rights.learn({ORDERS: frozenset({Operation.READ})}, 0)
    rights.learn({ORDERS: frozenset()}, 1)
    assert not rights.allows(ORDERS, Operation.READ, 1)
    rights.learn({ORDERS: frozenset({Operation.READ})}, 2)
    rights.forget()
    assert not rights.allows(ORDERS, Operation.READ, 2)


def test_needs_name_the_resource_of_the_path() -> None:
    assert on_topic(Operation.READ).resource({"topic": "orders"}) == ORDERS
    assert on_cluster(Operation.DESCRIBE).resource({}) == (ResourceType.CLUSTER, CLUSTER_NAME)


ALICE, HOST = Principal("User:alice"), "192.0.2.1"
NAMES = ("a", "ab", "b", "*")
DESCRIBE = Operation.DESCRIBE
kinds = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER])


@st.composite
def acls(draw: st.DrawFn, hosts: Collection[str]) -> AclBinding:
    kind = draw(kinds)
    cluster = kind is ResourceType.CLUSTER
    return AclBinding(
        resource_type=kind,
        pattern_type=PatternType.LITERAL
        if cluster
        else draw(st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])),
        resource_name=CLUSTER_NAME if cluster else draw(st.sampled_from(NAMES)),
        principal=draw(st.sampled_from([ALICE, Principal("User:bob"), Principal("User:*")])),
        host=draw(st.sampled_from(sorted(hosts))),
        operation=draw(st.sampled_from([DESCRIBE, Operation.READ, Operation.ALTER, Operation.ALL])),
        permission=draw(st.sampled_from([Permission.ALLOW, Permission.DENY])),
    )


def held_by(
    front_door: Authorizer, given: Collection[AclBinding], principal: Principal | None = ALICE
) -> Held:
    """What alice sees through a front door that decides so."""
    rights = front_door.rights(ALICE, HOST)
    operations = SUPPORTED_OPERATIONS[ResourceType.CLUSTER]
    return Held(
        principal=principal,
        acls=given,
        cluster=frozenset(
            each for each in operations if rights.allows(each, ResourceType.CLUSTER, CLUSTER_NAME)
        ),
        topics=[name for name in NAMES if rights.allows(DESCRIBE, ResourceType.TOPIC, name)],
    )


def described(front_door: Authorizer) -> list[str]:
    rights = front_door.rights(ALICE, HOST)
    return [name for name in NAMES if rights.allows(DESCRIBE, ResourceType.GROUP, name)]


@given(st.lists(acls((ANY_HOST, HOST, "192.0.2.9")), max_size=8), st.booleans())
def test_no_group_that_the_login_may_describe_is_left_out(made: list[AclBinding], known: bool) -> None:
    front_door = Authorizer(AclIndex(made))
    held = held_by(front_door, made, ALICE if known else None)
    assert set(describable_groups(NAMES, held)) >= set(described(front_door))


@given(st.lists(acls((ANY_HOST,)), max_size=8))
def test_acls_for_every_host_leave_no_group_to_ask_about_that_would_be_denied(made: list[AclBinding]) -> None:
    front_door = Authorizer(AclIndex(made))
    assert describable_groups(NAMES, held_by(front_door, made)) == described(front_door)


def allowed(kind: ResourceType, name: str, principal: Principal = ALICE) -> AclBinding:
    return AclBinding(
        resource_type=kind,
        pattern_type=PatternType.LITERAL,
        resource_name=name,
        principal=principal,
        host=ANY_HOST,
        operation=DESCRIBE,
        permission=Permission.ALLOW,
    )


def test_rights_that_no_acl_gives_are_seen_by_the_cluster_and_the_topics() -> None:
    cluster = allowed(ResourceType.CLUSTER, CLUSTER_NAME)
    bobs = allowed(ResourceType.GROUP, "b", Principal("User:bob"))
    everyone = Authorizer(AclIndex([cluster, bobs]), allow_everyone_if_no_acl_found=True)
    assert described(everyone) == ["a", "ab", "*"]
    assert describable_groups(NAMES, held_by(everyone, [cluster, bobs])) == ["a", "ab", "*"]
    bobs_topic = allowed(ResourceType.TOPIC, "b", Principal("User:bob"))
    given = [cluster, bobs, bobs_topic]
    super_user = Authorizer(AclIndex(given), super_users=[ALICE])
    assert describable_groups(NAMES, held_by(super_user, given)) == list(NAMES)
