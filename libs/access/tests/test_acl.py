"""Bindings and filters have Kafka's codes, and match and are refused as in Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest
from access_values import NAMES, PATTERNS, PERMISSIONS, PRINCIPALS, TYPES, bindings
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.acl import (
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    binding_refusal,
    filter_refusal,
)
from kafscale.access.principals import Principal
from kafscale.testkit.acls import acl
from kafscale.wire.errors import ErrorCode


def test_the_codes_are_those_of_kafka_4_3() -> None:
    assert [type_.name for type_ in ResourceType] == [
        *("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
    ]
    assert [type_.name for type_ in PatternType] == ["UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"]
    assert [permission.name for permission in Permission] == ["UNKNOWN", "ANY", "DENY", "ALLOW"]
    assert [operation.name for operation in Operation][13:] == [
        "CREATE_TOKENS",
        "DESCRIBE_TOKENS",
        "TWO_PHASE_COMMIT",
    ]
    for codes in (ResourceType, PatternType, Permission, Operation):
        assert [int(code) for code in codes] == list(range(len(codes)))


@pytest.mark.parametrize("codes", [ResourceType, PatternType, Permission, Operation])
@pytest.mark.parametrize("code", [-1, 0, 16, 127])
def test_a_code_that_kafka_does_not_know_is_unknown(codes: type[ResourceType], code: int) -> None:
    assert codes(code).name == "UNKNOWN"


def test_each_resource_type_has_the_operations_of_kafka_s_acl_entry() -> None:
    counts = {type_.name: len(operations) for type_, operations in SUPPORTED_OPERATIONS.items()}
    assert counts == {
        **{"TOPIC": 8, "GROUP": 5, "CLUSTER": 7, "TRANSACTIONAL_ID": 3, "DELEGATION_TOKEN": 1, "USER": 2}
    }
    assert Operation.TWO_PHASE_COMMIT in SUPPORTED_OPERATIONS[ResourceType.TRANSACTIONAL_ID]


NAMED_FOO_MATCHES = {
    # filter's pattern type: (literal foo, literal *, prefixed foo, prefixed f, prefixed foobar, literal bar)
    PatternType.LITERAL: (True, False, False, False, False, False),
    PatternType.PREFIXED: (False, False, True, False, False, False),
    PatternType.ANY: (True, False, True, False, False, False),
    PatternType.MATCH: (True, True, True, True, False, False),
}


@pytest.mark.parametrize("pattern_type", NAMED_FOO_MATCHES)
def test_a_filter_with_a_name_matches_as_resource_pattern_filter(pattern_type: PatternType) -> None:
    wanted = AclFilter(resource_type=ResourceType.TOPIC, pattern_type=pattern_type, resource_name="foo")
    stored = ["LITERAL:foo", "LITERAL:*", "PREFIXED:foo", "PREFIXED:f", "PREFIXED:foobar", "LITERAL:bar"]
    assert tuple(wanted.matches(acl(f"TOPIC:{text}")) for text in stored) == NAMED_FOO_MATCHES[pattern_type]


def test_a_filter_for_the_wildcard_matches_the_wildcard_pattern_alone() -> None:
    for pattern_type in (PatternType.LITERAL, PatternType.MATCH):
        wanted = AclFilter(pattern_type=pattern_type, resource_name="*")
        assert wanted.matches(acl("GROUP:LITERAL:*"))
        assert not wanted.matches(acl("GROUP:LITERAL:foo"))


def test_a_filter_for_every_host_matches_the_text_alone() -> None:
    assert AclFilter(host="*").matches(acl())
    assert not AclFilter(host="*").matches(acl(host="10.0.0.1"))
    assert not AclFilter(principal="User:*").matches(acl())


def naive_match(wanted: AclFilter, stored: AclBinding) -> bool:
    """Kafka's two filters, condition by condition."""
    name, pattern = wanted.resource_name, wanted.pattern_type
    if pattern is PatternType.MATCH and name is not None:
        if stored.pattern_type is PatternType.PREFIXED:
            named = name.startswith(stored.resource_name)
        else:
            named = stored.resource_name in (name, "*")
    else:
        named = name is None or name == stored.resource_name
        named = named and pattern in (PatternType.ANY, PatternType.MATCH, stored.pattern_type)
    exact = [
        (wanted.resource_type, stored.resource_type),
        (wanted.operation, stored.operation),
        (wanted.permission, stored.permission),
    ]
    texts = [(wanted.principal, stored.principal), (wanted.host, stored.host)]
    return (
        named
        and all(want.name == "ANY" or want is have for want, have in exact)
        and all(want is None or want == have for want, have in texts)
    )


filters = st.builds(
    AclFilter,
    resource_type=st.sampled_from([ResourceType.ANY, *TYPES]),
    pattern_type=st.sampled_from([PatternType.ANY, PatternType.MATCH, *PATTERNS]),
    resource_name=st.sampled_from([None, *NAMES]),
    principal=st.sampled_from([None, *PRINCIPALS]),
    host=st.sampled_from([None, "*"]),
    operation=st.sampled_from([Operation.ANY, Operation.READ, Operation.ALL]),
    permission=st.sampled_from([Permission.ANY, *PERMISSIONS]),
)


@given(filters, bindings)
def test_filters_match_as_kafka_s_two_filters(wanted: AclFilter, stored: AclBinding) -> None:
    assert wanted.matches(stored) == naive_match(wanted, stored)


GOOD = acl("TOPIC:LITERAL:orders READ")
REFUSED = [
    (replace(GOOD, resource_type=ResourceType.UNKNOWN), "Invalid resourceType UNKNOWN"),
    (replace(GOOD, resource_type=ResourceType.ANY), "Invalid resourceType ANY"),
    (replace(GOOD, pattern_type=PatternType.MATCH), "Invalid patternType MATCH"),
    (replace(GOOD, pattern_type=PatternType.ANY), "Invalid patternType ANY"),
    (replace(GOOD, pattern_type=PatternType.UNKNOWN), "Invalid patternType UNKNOWN"),
    (replace(GOOD, operation=Operation.ANY), "Invalid operation ANY"),
    (replace(GOOD, operation=Operation.UNKNOWN), "Invalid operation UNKNOWN"),
    (replace(GOOD, permission=Permission.ANY), "Invalid permissionType ANY"),
    (replace(GOOD, resource_name=""), "Invalid empty resource name"),
    (
        replace(GOOD, resource_type=ResourceType.CLUSTER),
        "The only valid name for the CLUSTER resource is kafka-cluster",
    ),
    (
        replace(GOOD, principal=Principal("alice")),
        "Could not parse principal from `alice` (no colon is present separating the principal type from the "
        "principal name)",
    ),
]


@pytest.mark.parametrize(("stored", "sentence"), REFUSED)
def test_a_binding_that_kafka_refuses_is_refused_with_its_sentence(stored: AclBinding, sentence: str) -> None:
    refusal = binding_refusal(stored)
    assert refusal is not None
    assert (refusal.code, refusal.message) == (ErrorCode.INVALID_REQUEST, sentence)


@given(bindings)
def test_a_binding_is_accepted_whether_or_not_its_operation_fits_the_type(stored: AclBinding) -> None:
    assert binding_refusal(stored) is None


def test_the_cluster_is_accepted_by_its_name() -> None:
    assert binding_refusal(acl("CLUSTER:LITERAL:kafka-cluster ALTER")) is None


def test_a_filter_with_an_unknown_part_is_refused() -> None:
    assert filter_refusal(AclFilter()) is None
    unknown = [
        (AclFilter(resource_type=ResourceType.UNKNOWN), "Unknown patternFilter."),
        (AclFilter(pattern_type=PatternType.UNKNOWN), "Unknown patternFilter."),
        (AclFilter(operation=Operation.UNKNOWN), "Unknown entryFilter."),
        (AclFilter(permission=Permission.UNKNOWN), "Unknown entryFilter."),
    ]
    for wanted, sentence in unknown:
        refusal = filter_refusal(wanted)
        assert refusal is not None
        assert (refusal.code, refusal.message) == (ErrorCode.INVALID_REQUEST, sentence)
