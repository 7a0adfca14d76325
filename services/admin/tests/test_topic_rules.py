"""Which topics may be made, and what a change of configs does: the pure rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from kafscale.admin import alterations
from kafscale.admin.alterations import NamedOperation, Operation
from kafscale.admin.config_answers import configs_of
from kafscale.admin.config_table import Effect
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.plan import (
    Assignment,
    NewTopic,
    Refused,
    check_new_topic,
    grow,
    invalid_topic_name,
    with_configs,
)
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.incremental_alter_configs import (
    IncrementalAlterConfigsRequestAlterableConfig as Change,
)

TOPIC = Topic(name="orders", topic_id=TopicId(bytes(16)), partitions=3, configs={"retention.ms": "5"})


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_"])
def test_names_by_kafkas_rule_are_legal(name: str) -> None:
    assert invalid_topic_name(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a%2eb", "a b", "ü", "a\0b", "x" * 250, "@kafscale", "a\n"]
)
def test_other_names_are_not(name: str) -> None:
    assert invalid_topic_name(name) is not None


def replaced(topic: Topic, configs: Sequence[tuple[str, str | None]]) -> Topic | Refused:
    outcome = alterations.replaced(TOPIC_CONFIGS, topic.configs, configs)
    return outcome if isinstance(outcome, Refused) else with_configs(topic, outcome)


def changed(topic: Topic, operations: Sequence[NamedOperation]) -> Topic | Refused:
    outcome = alterations.changed(TOPIC_CONFIGS, topic.configs, operations)
    return outcome if isinstance(outcome, Refused) else with_configs(topic, outcome)


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
    def asked(*partitions: int, replicas: int = 1, count: int = -1) -> NewTopic:
        assignments = [Assignment(partition, replicas) for partition in partitions]
        return NewTopic(name="t", partitions=count, assignments=assignments)

    assert check_new_topic(asked(1, 0), [], 9) == 2
    assert check_new_topic(asked(1, 0, replicas=3), [], 9) == 2
    for wrong in (asked(0, 2), asked(0, 1, 1), asked(0, replicas=0), asked(0, replicas=4)):
        assert error_of(check_new_topic(wrong, [], 1)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    uneven = NewTopic(name="t", assignments=[Assignment(0, 1), Assignment(1, 2)])
    assert error_of(check_new_topic(uneven, [], 1)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert error_of(check_new_topic(asked(0, 1, count=2), [], 1)) is ErrorCode.INVALID_REQUEST


def test_a_name_is_taken_also_by_one_that_metrics_could_not_tell_apart() -> None:
    assert error_of(check_new_topic(NewTopic(name="a.b"), ["a.b"], 1)) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert error_of(check_new_topic(NewTopic(name="a.b"), ["a_b"], 1)) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.bytes", "x"),
        ("segment.bytes", "0"),
        ("segment.bytes", "1048575"),
        ("no.such.key", "1"),
        ("cleanup.policy", "compacted"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", ",compact"),
        ("compression.type", "brotli"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("delete.retention.ms", "-1"),
        ("kafscale.linger.ms", "60001"),
        ("kafscale.bundles", "true"),
        ("max.compaction.lag.ms", "0"),
        ("max.message.bytes", "67108865"),
        ("max.message.bytes", "1_000"),
        ("max.message.bytes", "9" * 5_000),
        ("message.timestamp.type", "logappendtime"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.compaction.lag.ms", "-1"),
        ("file.delete.delay.ms", "-1"),
        ("flush.messages", "0"),
        ("flush.ms", "-1"),
        ("follower.replication.throttled.replicas", "none"),
        ("index.interval.bytes", "-1"),
        ("leader.replication.throttled.replicas", "0:1:2"),
        ("leader.replication.throttled.replicas", ",".join(["0:1"] * 2_000)),
        ("local.retention.bytes", "-3"),
        ("local.retention.ms", "-3"),
        ("message.timestamp.after.max.ms", "-1"),
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "2147483648"),
        ("preallocate", "yes"),
        ("remote.log.copy.disable", "1"),
        ("segment.index.bytes", "3"),
        ("segment.jitter.ms", "-1"),
        ("segment.ms", "0"),
        ("unclean.leader.election.enable", ""),
        ("remote.storage.enable", "true"),
        ("retention.ms", "1.5"),
    ],
)
def test_a_bad_config_is_invalid_config_and_names_the_key(key: str, value: str | None) -> None:
    for outcome in (
        check_new_topic(NewTopic(name="t", configs={key: value}), [], 1),
        replaced(TOPIC, [(key, value)]),
        changed(TOPIC, [Change(name=key, config_operation=Operation.SET, value=value)]),
    ):
        assert error_of(outcome) is ErrorCode.INVALID_CONFIG
        assert isinstance(outcome, Refused)
        assert key in outcome.message


def test_a_null_value_is_invalid_config_at_creation_and_an_invalid_request_in_a_change() -> None:
    created = check_new_topic(NewTopic(name="t", configs={"retention.ms": None}), [], 1)
    assert error_of(created) is ErrorCode.INVALID_CONFIG
    for key in ("retention.ms", "no.such.key"):
        assert error_of(replaced(TOPIC, [(key, None)])) is ErrorCode.INVALID_REQUEST
        for operation in (Operation.SET, Operation.APPEND, Operation.SUBTRACT):
            change = Change(name=key, config_operation=operation, value=None)
            assert error_of(changed(TOPIC, [change])) is ErrorCode.INVALID_REQUEST


def test_a_value_that_was_valid_when_it_was_set_does_not_stop_changes_of_other_keys() -> None:
    old = replace(TOPIC, configs={"segment.bytes": "8192"})
    after = changed(old, [Change(name="retention.ms", config_operation=Operation.SET, value="7")])
    assert isinstance(after, Topic)
    assert after.configs == {"segment.bytes": "8192", "retention.ms": "7"}
    assert isinstance(replaced(old, [("segment.bytes", "8192")]), Topic)
    assert error_of(replaced(old, [("segment.bytes", "8193")])) is ErrorCode.INVALID_CONFIG


def test_the_segment_size_of_tests_is_shown_only_where_it_is_set() -> None:
    after = replaced(TOPIC, [("internal.segment.bytes", "8192"), ("segment.bytes", "1048576")])
    assert isinstance(after, Topic)
    assert after.segment_bytes == 8_192
    for chosen, is_shown in ((after.configs, True), (TOPIC.configs, False)):
        shown = [row.name for row in configs_of(TOPIC_CONFIGS, chosen, None, synonyms=False, docs=False)]
        assert ("internal.segment.bytes" in shown) is is_shown


def test_alter_configs_replaces_the_whole_set() -> None:
    after = replaced(TOPIC, [("segment.bytes", "1048576")])
    assert isinstance(after, Topic)
    assert after.configs == {"segment.bytes": "1048576"}
    assert after.config_version == TOPIC.config_version + 1


def test_incremental_changes_leave_the_other_keys_alone() -> None:
    after = changed(TOPIC, [Change(name="segment.bytes", config_operation=Operation.SET, value="1048576")])
    assert isinstance(after, Topic)
    assert after.configs == {"retention.ms": "5", "segment.bytes": "1048576"}
    reset = changed(after, [Change(name="retention.ms", config_operation=Operation.DELETE, value=None)])
    assert isinstance(reset, Topic)
    assert reset.configs == {"segment.bytes": "1048576"}


def test_append_and_subtract_are_for_lists() -> None:
    append = Change(name="retention.ms", config_operation=Operation.APPEND, value="1")
    assert error_of(changed(TOPIC, [append])) is ErrorCode.INVALID_CONFIG
    both = changed(
        TOPIC, [Change(name="cleanup.policy", config_operation=Operation.APPEND, value=" compact")]
    )
    assert isinstance(both, Topic)
    assert both.configs["cleanup.policy"] == "delete,compact"
    same = changed(both, [Change(name="cleanup.policy", config_operation=Operation.APPEND, value="delete")])
    assert isinstance(same, Topic)
    assert same.configs == both.configs
    less = changed(both, [Change(name="cleanup.policy", config_operation=Operation.SUBTRACT, value="delete")])
    assert isinstance(less, Topic)
    assert less.configs["cleanup.policy"] == "compact"
    last = Change(name="cleanup.policy", config_operation=Operation.SUBTRACT, value="delete")
    none_left = changed(TOPIC, [last])
    assert isinstance(none_left, Topic)
    assert none_left.configs["cleanup.policy"] == ""
    assert not none_left.deletes_records
    assert not none_left.is_compacted
    first = changed(
        none_left, [Change(name="cleanup.policy", config_operation=Operation.APPEND, value="compact")]
    )
    assert isinstance(first, Topic)
    assert first.configs["cleanup.policy"] == "compact"
    nothing = Change(name="cleanup.policy", config_operation=Operation.APPEND, value="")
    assert error_of(changed(TOPIC, [nothing])) is ErrorCode.INVALID_CONFIG


def test_a_key_named_twice_is_refused() -> None:
    twice = [Change(name="retention.ms", config_operation=Operation.SET, value=v) for v in "12"]
    assert error_of(changed(TOPIC, twice)) is ErrorCode.INVALID_REQUEST
    assert error_of(replaced(TOPIC, [("retention.ms", v) for v in "12"])) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,delete"),
        ("compression.type", "producer"),
        ("compression.type", "uncompressed"),
        ("compression.type", "zstd"),
        ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "9"),
        ("compression.lz4.level", "1"),
        ("compression.zstd.level", "-5"),
        ("kafscale.linger.ms", "-1"),
        ("max.compaction.lag.ms", "1"),
        ("max.message.bytes", "0"),
        ("max.message.bytes", "67108864"),
        ("message.timestamp.type", "LogAppendTime"),
        ("file.delete.delay.ms", "0"),
        ("flush.messages", "1"),
        ("flush.ms", "0"),
        ("follower.replication.throttled.replicas", "0:1,1:2"),
        ("index.interval.bytes", "0"),
        ("leader.replication.throttled.replicas", "*"),
        ("local.retention.bytes", "5"),
        ("local.retention.ms", "1000"),
        ("message.timestamp.after.max.ms", "0"),
        ("message.timestamp.before.max.ms", "5"),
        ("min.insync.replicas", "2"),
        ("preallocate", "true"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("remote.storage.enable", "false"),
        ("segment.index.bytes", "4"),
        ("segment.jitter.ms", "5"),
        ("segment.ms", "1"),
        ("unclean.leader.election.enable", "true"),
        ("retention.bytes", "-1"),
        ("retention.bytes", "-9223372036854775808"),
        ("retention.ms", "9223372036854775807"),
        ("segment.bytes", "1048576"),
    ],
)
def test_what_kafka_allows_and_we_keep_can_be_set(key: str, value: str) -> None:
    assert check_new_topic(NewTopic(name="t", configs={key: value}), [], 1) == 1
    for after in (
        replaced(TOPIC, [(key, value)]),
        changed(TOPIC, [Change(name=key, config_operation=Operation.SET, value=value)]),
    ):
        assert isinstance(after, Topic)
        assert after.configs[key] == value


def test_the_least_compaction_lag_is_not_above_the_greatest() -> None:
    lags = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}
    asked = NewTopic(name="t", configs=lags)
    assert error_of(check_new_topic(asked, [], 1)) is ErrorCode.INVALID_CONFIG
    assert error_of(replaced(TOPIC, list(lags.items()))) is ErrorCode.INVALID_CONFIG
    least = replaced(TOPIC, [("min.compaction.lag.ms", "10")])
    assert isinstance(least, Topic)
    most = Change(name="max.compaction.lag.ms", config_operation=Operation.SET, value="9")
    outcome = changed(least, [most])
    assert error_of(outcome) is ErrorCode.INVALID_CONFIG
    assert isinstance(outcome, Refused)
    assert "max.compaction.lag.ms" in outcome.message
    equal = changed(least, [Change(name="max.compaction.lag.ms", config_operation=Operation.SET, value="10")])
    assert isinstance(equal, Topic)


@pytest.mark.parametrize("count", [3, 2, 0, -1])
def test_partition_counts_only_grow(count: int) -> None:
    assert error_of(grow(TOPIC, count)) is ErrorCode.INVALID_PARTITIONS
    grown = grow(TOPIC, 4)
    assert isinstance(grown, Topic)
    assert grown.partitions == 4


def test_every_config_has_a_default_that_it_would_accept_itself() -> None:
    for key in TOPIC_CONFIGS.keys.values():
        assert TOPIC_CONFIGS.invalid_value(key.name, key.default) is None


@pytest.mark.parametrize(
    ("key", "value", "stored"),
    [
        ("segment.ms", "  5\t", "5"),
        ("preallocate", " TRUE ", "true"),
        ("retention.ms", " -1", "-1"),
        ("retention.ms", "+007", "7"),
        ("cleanup.policy", " compact ,delete", "compact,delete"),
        ("cleanup.policy", "delete,delete", "delete"),
        ("cleanup.policy", " ", ""),
        ("compression.type", " gzip ", "gzip"),
        ("leader.replication.throttled.replicas", "0:1 , 0:1", "0:1,0:1"),
        ("min.cleanable.dirty.ratio", ".50", "0.5"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "1.5e-4", "1.5E-4"),
        ("min.cleanable.dirty.ratio", "0.00001", "1.0E-5"),
    ],
)
def test_a_value_is_kept_as_kafka_reads_it(key: str, value: str, stored: str) -> None:
    after = replaced(TOPIC, [(key, value)])
    assert isinstance(after, Topic)
    assert after.configs == {key: stored}


def test_a_value_is_no_longer_than_a_service_holds_for_every_topic() -> None:
    assert error_of(replaced(TOPIC, [("segment.ms", " " * 4_096 + "5")])) is ErrorCode.INVALID_CONFIG


def test_a_key_of_an_older_version_is_not_shown_and_leaves_with_the_next_change() -> None:
    old = replace(TOPIC, configs={"kafscale.bundles": "false", "retention.ms": "5"})
    assert "kafscale.bundles" not in {key.name for key in TOPIC_CONFIGS.shown(old.configs)}
    longer = Change(name="retention.ms", config_operation=Operation.SET, value="6")
    after = changed(old, [longer])
    assert isinstance(after, Topic)
    assert after.configs == {"retention.ms": "6"}


def test_to_reset_a_key_that_nobody_knows_is_no_mistake() -> None:
    unknown = Change(name="no.such.key", config_operation=Operation.DELETE, value=None)
    after = changed(TOPIC, [unknown])
    assert isinstance(after, Topic)
    assert after.configs == TOPIC.configs


def test_a_key_is_felt_or_without_effect() -> None:
    felt = {key.name for key in TOPIC_CONFIGS.shown({}) if key.effect is not Effect.WITHOUT_EFFECT}
    assert felt == {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "kafscale.linger.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
    }


def test_the_values_of_the_table_are_those_that_services_read() -> None:
    assert (TOPIC.segment_bytes, TOPIC.max_message_bytes, TOPIC.linger_ms) == (1_073_741_824, 1_048_588, 0)
    every = {name: key.default for name, key in TOPIC_CONFIGS.keys.items()}
    named = Topic(name="t", topic_id=TopicId(bytes(16)), partitions=1, configs=every)
    plain = Topic(name="t", topic_id=TopicId(bytes(16)), partitions=1)
    for read in ("retention_ms", "retention_bytes", "segment_bytes", "max_message_bytes", "linger_ms"):
        assert getattr(named, read) == getattr(plain, read)
    for read in ("timestamp_after_max_ms", "timestamp_before_max_ms"):
        assert getattr(named, read) == getattr(plain, read)
    assert (named.is_compacted, named.takes_append_time) == (plain.is_compacted, plain.takes_append_time)
