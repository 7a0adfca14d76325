"""Law: the explanation of a right decides as the authorizer does with all ACLs, and names each ACL that applies."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from kafscale.access.acl_index import AclIndex, bit
from kafscale.access.authorizer import Authorizer
from kafscale.access.principals import Principal
from kafscale.client.acl_options import WrongOptions
from kafscale.console.acls import Question, Recipe, binding_of, explain, row_of, rows_of

TOPIC = ResourceType.TOPIC
OPERATIONS = st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER])
PRINCIPALS = st.sampled_from([Principal("User:alice"), Principal("User:bob")])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2"])
ACLS = st.builds(
    AclBinding,
    resource_type=st.sampled_from([TOPIC, ResourceType.GROUP]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    resource_name=st.sampled_from(["*", "o", "or", "orders", "other"]),
    principal=PRINCIPALS | st.just(Principal("User:*")),
    host=HOSTS | st.just("*"),
    operation=OPERATIONS | st.just(Operation.ALL),
    permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@given(
    st.lists(ACLS, max_size=8, unique=True), PRINCIPALS, OPERATIONS, HOSTS, st.sampled_from(["orders", "x"])
)
def test_the_explanation_is_the_authorizer_s_decision(
    acls: list[AclBinding], principal: Principal, operation: Operation, host: str, name: str
) -> None:
    found = explain(acls, Question(principal, operation, TOPIC, name, host))
    decided = bool(Authorizer(AclIndex(acls)).allowed(principal, host, TOPIC, name) & bit(operation))
    why = [row["why"] for row in found["rows"]]
    assert (found["allowed"] is None) == (not why)
    assert bool(found["allowed"]) == decided == ("allows" in why and "denies" not in why)
    assert {row["name"] for row in found["rows"]} <= {"*", "o", "or", name}


@given(ACLS)
def test_a_row_is_its_acl_and_selects_it_alone(acl: AclBinding) -> None:
    row = msgspec.convert(msgspec.to_builtins(row_of(acl)), type(row_of(acl)))
    assert binding_of(row) == acl
    assert AclFilter.of(binding_of(row)).matches(acl)
    assert not AclFilter.of(binding_of(row)).matches(_elsewhere(acl))


def _elsewhere(acl: AclBinding) -> AclBinding:
    other = row_of(acl)
    return binding_of(msgspec.structs.replace(other, host=f"{other.host}1"))


def test_recipes_are_those_of_kafka_s_command() -> None:
    rows = rows_of(Recipe("consumer", "User:alice", topics=["orders"], groups=["billing"]))
    assert {(row.resource, row.name, row.operation) for row in rows} == {
        ("topic", "orders", "read"),
        ("topic", "orders", "describe"),
        ("group", "billing", "read"),
    }
    (row,) = rows_of(Recipe("custom", "User:b", topics=["o"], operations=["write"], prefixed=True, deny=True))
    assert (row.pattern, row.permission, row.operation, row.host) == ("prefixed", "deny", "write", "*")
    with pytest.raises(WrongOptions):
        rows_of(Recipe("custom", "User:b", operations=["write"]))


def test_a_cluster_has_one_name_whatever_was_asked() -> None:
    (row,) = rows_of(Recipe("custom", "User:a", cluster=True, operations=["alter"]))
    asked = Question("User:a", Operation.ALTER, ResourceType.CLUSTER, "")
    assert explain([binding_of(row)], asked)["allowed"] is True
