"""Which topics may be made, and what a change of configs does: the pure rules."""

from __future__ import annotations

import pytest
from kafscale.admin.alterations import Operation, changed, replaced
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.names import invalid_reason
from kafscale.admin.plan import NewTopic, Refused, check_new_topic, grow
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.incremental_alter_configs import (
    IncrementalAlterConfigsRequestAlterableConfig as Change,
)

TOPIC = Topic(name="orders", topic_id=TopicId(bytes(16)), partitions=3, configs={"retention.ms": "5"})


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_"])
def test_names_by_kafkas_rule_are_legal(name: str) -> None:
    assert invalid_reason(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a%2eb", "a b", "ü", "a\0b", "x" * 250, "@kafscale", "a\n"]
)
def test_other_names_are_not(name: str) -> None:
    assert invalid_reason(name) is not None


def error_of(outcome: object) -> ErrorCode:
    assert isinstance(outcome, Refused), outcome
    assert outcome.message
    return outcome.error


def test_a_count_of_minus_one_is_the_servers_default() -> None:
    assert check_new_topic(NewTopic(name="t"), [], partitions_default=7) == 7


@pytest.mark.parametrize("count", [0, -2, 10_001, 2**31 - 1])
def test_counts_out_of_bounds_are_refused(count: int) -> None:
    asked = NewTopic(name="t", partitions=count)
    assert error_of(check_new_topic(asked, [], 1)) is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [-1, 1, 2, 3])
def test_replication_factors_up_to_three_are_accepted_on_any_cluster(factor: int) -> None:
    assert check_new_topic(NewTopic(name="t", partitions=2, replication_factor=factor), [], 1) == 2


@pytest.mark.parametrize("factor", [0, 4, -2])
def test_other_replication_factors_are_refused(factor: int) -> None:
    asked = NewTopic(name="t", replication_factor=factor)
    assert error_of(check_new_topic(asked, [], 1)) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_assignments_give_the_count_and_must_be_numbered_from_zero() -> None:
    assert check_new_topic(NewTopic(name="t", assignments={0: 1, 1: 1}), [], 9) == 2
    gap = NewTopic(name="t", assignments={0: 1, 2: 1})
    assert error_of(check_new_topic(gap, [], 1)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    both = NewTopic(name="t", partitions=2, assignments={0: 1, 1: 1})
    assert error_of(check_new_topic(both, [], 1)) is ErrorCode.INVALID_REQUEST


def test_a_name_is_taken_also_by_one_that_metrics_could_not_tell_apart() -> None:
    assert error_of(check_new_topic(NewTopic(name="a.b"), ["a.b"], 1)) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert error_of(check_new_topic(NewTopic(name="a.b"), ["a_b"], 1)) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.bytes", "x"),
        ("segment.bytes", "0"),
        ("segment.bytes", None),
        ("no.such.key", "1"),
        ("cleanup.policy", "compact"),
        ("compression.type", "gzip"),
    ],
)
def test_a_bad_config_is_invalid_config_and_names_the_key(key: str, value: str | None) -> None:
    for outcome in (
        check_new_topic(NewTopic(name="t", configs={key: value}), [], 1),
        replaced(TOPIC, {key: value}),
        changed(TOPIC, [Change(name=key, config_operation=Operation.SET, value=value)]),
    ):
        assert error_of(outcome) is ErrorCode.INVALID_CONFIG
        assert isinstance(outcome, Refused)
        assert key in outcome.message


def test_alter_configs_replaces_the_whole_set() -> None:
    after = replaced(TOPIC, {"segment.bytes": "1"})
    assert isinstance(after, Topic)
    assert after.configs == {"segment.bytes": "1"}
    assert after.config_version == TOPIC.config_version + 1


def test_incremental_changes_leave_the_other_keys_alone() -> None:
    after = changed(TOPIC, [Change(name="segment.bytes", config_operation=Operation.SET, value="1")])
    assert isinstance(after, Topic)
    assert after.configs == {"retention.ms": "5", "segment.bytes": "1"}
    reset = changed(after, [Change(name="retention.ms", config_operation=Operation.DELETE, value=None)])
    assert isinstance(reset, Topic)
    assert reset.configs == {"segment.bytes": "1"}


def test_append_and_subtract_are_for_lists() -> None:
    append = Change(name="retention.ms", config_operation=Operation.APPEND, value="1")
    assert error_of(changed(TOPIC, [append])) is ErrorCode.INVALID_CONFIG
    same = Change(name="cleanup.policy", config_operation=Operation.APPEND, value="delete")
    assert isinstance(changed(TOPIC, [same]), Topic)
    none_left = Change(name="cleanup.policy", config_operation=Operation.SUBTRACT, value="delete")
    assert error_of(changed(TOPIC, [none_left])) is ErrorCode.INVALID_CONFIG


def test_a_key_named_twice_is_refused() -> None:
    twice = [Change(name="retention.ms", config_operation=Operation.SET, value=v) for v in "12"]
    assert error_of(changed(TOPIC, twice)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("count", [3, 2, 0, -1])
def test_partition_counts_only_grow(count: int) -> None:
    assert error_of(grow(TOPIC, count)) is ErrorCode.INVALID_PARTITIONS
    grown = grow(TOPIC, 4)
    assert isinstance(grown, Topic)
    assert grown.partitions == 4


def test_every_config_has_a_default_that_it_would_accept_itself() -> None:
    for key in TOPIC_CONFIGS.values():
        assert key.check is None or key.check(key.default) is None
