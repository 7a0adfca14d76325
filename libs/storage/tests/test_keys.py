"""Keys are persisted: they come back as they went in, and no prefix catches a neighbour."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.keys import (
    Keyspace,
    LagSamplesName,
    SegmentName,
    SlotId,
    TopicId,
    UnknownKey,
    index_beside,
    prefix_end,
)

KEYS = Keyspace("prod")
TOPIC = TopicId(bytes(range(16)))
topic_ids = st.binary(min_size=16, max_size=16).map(TopicId)
partitions = st.integers(0, 2**31 - 1)
names = st.text(min_size=1, max_size=60)
slots = st.integers(0, 63).map(SlotId)
groups = st.text(max_size=60)  # old clients commit for the group without a name


def test_keys_are_written_as_documented() -> None:
    assert KEYS.live("produce", 3, "abc") == b"/kafscale/prod/live/produce/3/abc"
    assert KEYS.node("frontdoor", 3) == b"/kafscale/prod/node/frontdoor/3"
    assert KEYS.cluster() == b"/kafscale/prod/cluster"
    assert KEYS.topic("a.b_c-d") == b"/kafscale/prod/t/a.b_c-d"
    assert KEYS.head(TOPIC, 7) == b"/kafscale/prod/p/000102030405060708090a0b0c0d0e0f/7"
    assert KEYS.meta(TOPIC, 7) == b"/kafscale/prod/m/000102030405060708090a0b0c0d0e0f/7"
    assert KEYS.owner(TOPIC, 7) == b"/kafscale/prod/o/000102030405060708090a0b0c0d0e0f/7"
    assert KEYS.epoch_floor("a") == b"/kafscale/prod/e/a"
    assert KEYS.job_run("retention") == b"/kafscale/prod/job/retention"
    assert KEYS.group_config("a/b c") == b"/kafscale/prod/gc/a%2Fb%20c"
    assert KEYS.job_place("retention") == b"/kafscale/prod/job-place/retention"
    assert KEYS.compaction_pass(TOPIC, 7) == b"/kafscale/prod/pass/000102030405060708090a0b0c0d0e0f/7"
    assert KEYS.settle_request("r", "a b") == b"/kafscale/prod/settle/r/a%20b"
    assert KEYS.settle_request("r") == b"/kafscale/prod/settle/r/"
    assert [KEYS.parse_settle_request(KEYS.settle_request("r", topic)) for topic in ("", "a/b")] == [
        "",
        "a/b",
    ]
    assert KEYS.pid_next() == b"/kafscale/prod/pid/next"
    assert KEYS.slot_claim(SlotId(7)) == b"/kafscale/prod/cs/07"
    assert KEYS.transaction(SlotId(7), "a/b c") == b"/kafscale/prod/x/07/a%2Fb%20c"
    assert KEYS.pending(SlotId(7), "a/b", 12) == b"/kafscale/prod/cp/07/a%2Fb/12"
    assert KEYS.group(SlotId(7), "a/b c") == b"/kafscale/prod/g/07/a%2Fb%20c"
    assert (
        KEYS.committed(SlotId(63), "a.b", TOPIC, 12)
        == b"/kafscale/prod/c/63/a.b/000102030405060708090a0b0c0d0e0f/12"
    )


def test_objects_are_named_as_the_specification_says() -> None:
    assert KEYS.segment_key("orders", 0, 42) == "prod/orders/0/segment-00000000000000000042.kfs"
    assert KEYS.index_key("orders", 0, 42) == "prod/orders/0/segment-00000000000000000042.index"
    assert (
        KEYS.manifest_key(TOPIC, 1, 5, "u")
        == f"prod/@kafscale/manifest/{TOPIC.hex()}/1/00000000000000000005-u.mf"
    )
    assert (
        KEYS.snapshot_key(TOPIC, 1, 5, "u")
        == f"prod/@kafscale/producers/{TOPIC.hex()}/1/00000000000000000005-u.ps"
    )


@given(topic_ids, partitions)
def test_partition_keys_come_back_as_they_went_in(topic_id: TopicId, partition: int) -> None:
    assert KEYS.parse_head(KEYS.head(topic_id, partition)) == (topic_id, partition)
    assert KEYS.parse_owner(KEYS.owner(topic_id, partition)) == (topic_id, partition)


@given(slots, groups, topic_ids, partitions)
def test_keys_of_groups_come_back_as_they_went_in(
    slot: SlotId, group: str, topic_id: TopicId, partition: int
) -> None:
    assert KEYS.parse_in_group(KEYS.group(slot, group)) == (slot, group, None)
    beneath = KEYS.beneath_group(KEYS.group(slot, group), "m", group)
    assert KEYS.parse_in_group(beneath) == (slot, group, ("m", group))
    assert beneath.startswith(KEYS.beneath_group(KEYS.group(slot, group)))
    key = KEYS.committed(slot, group, topic_id, partition)
    assert KEYS.parse_committed(key) == (slot, group, topic_id, partition)
    for prefix in (KEYS.commits_prefix(), KEYS.commits_prefix(slot), KEYS.commits_prefix(slot, group)):
        assert prefix <= key < prefix_end(prefix)


@given(slots, groups, st.integers(0, 2**63 - 1))
def test_keys_of_transactions_come_back_as_they_went_in(slot: SlotId, name: str, producer_id: int) -> None:
    key = KEYS.pending(slot, name, producer_id)
    assert KEYS.parse_pending(key) == (slot, name, producer_id)
    for prefix in (KEYS.pendings_prefix(), KEYS.pendings_prefix(slot), KEYS.pendings_prefix(slot, name)):
        assert prefix <= key < prefix_end(prefix)
    assert not key.startswith(KEYS.commits_prefix())
    key = KEYS.transaction(slot, name)
    assert KEYS.parse_transaction(key) == (slot, name)
    assert key.startswith(KEYS.transactions_prefix(slot))


def test_the_watch_over_metas_and_heads_sees_no_transaction() -> None:
    """They are written often. See the docstring of keys.py."""
    first, end = KEYS.metas_prefix(), prefix_end(KEYS.heads_prefix())
    for key in (KEYS.transaction(SlotId(63), "z"), KEYS.pending(SlotId(63), "z", 1)):
        assert not first <= key < end


@pytest.mark.parametrize("key", ["07", "07/a", "07/a/b", "07/a/1/2", "x/a/1"])
def test_what_is_not_the_key_of_pending_offsets_is_refused(key: str) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_pending(KEYS.pendings_prefix() + key.encode())


@pytest.mark.parametrize("key", ["07", "07/a/b", "7/a", "x/a"])
def test_what_is_not_the_key_of_a_transaction_is_refused(key: str) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_transaction(KEYS.transactions_prefix() + key.encode())


@given(groups)
def test_the_key_of_a_groups_configs_comes_back_and_is_under_no_other_family(group: str) -> None:
    key = KEYS.group_config(group)
    assert KEYS.parse_group_config(key) == group
    assert b"/" not in key[len(KEYS.group_configs_prefix()) :]
    assert not key.startswith((KEYS.groups_prefix(), KEYS.commits_prefix()))


@pytest.mark.parametrize("key", [b"/kafscale/prod/gc/a/b", b"/kafscale/prod/g/07/a"])
def test_what_is_not_a_key_of_a_groups_configs_is_refused(key: bytes) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_group_config(key)


@given(slots, slots, groups, groups)
def test_the_offsets_of_one_group_are_under_no_other_groups_prefix(
    one: SlotId, two: SlotId, group: str, other: str
) -> None:
    key = KEYS.committed(one, group, TOPIC, 0)
    assert key.startswith(KEYS.commits_prefix(two, other)) == ((one, group) == (two, other))
    assert KEYS.group(one, group).startswith(KEYS.groups_prefix(two)) == (one == two)


@pytest.mark.parametrize("key", ["7", "007", "x7", ""])
def test_a_slot_has_two_digits(key: str) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_in_group(KEYS.groups_prefix() + key.encode() + b"/g")


@pytest.mark.parametrize("key", ["07", "07/a/b", "07/a/m/b/c", "x/a"])
def test_what_is_not_a_groups_key_is_refused(key: str) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_in_group(KEYS.groups_prefix() + key.encode())


@pytest.mark.parametrize(
    "key", ["07", "07/a", "07/a/b", f"07/a/{TOPIC.hex()}", f"07/a/{TOPIC.hex()}/x", f"7/a/{TOPIC.hex()}/1"]
)
def test_what_is_not_an_offsets_key_is_refused(key: str) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_committed(KEYS.commits_prefix() + key.encode())


@given(names, names)
def test_a_topic_key_comes_back_and_is_no_prefix_of_another(one: str, other: str) -> None:
    assert KEYS.parse_topic(KEYS.topic(one)) == one
    assert b"/" not in KEYS.topic(one)[len(KEYS.topics_prefix()) :]
    assert (KEYS.topic(one) == KEYS.topic(other)) == (one == other)


@given(names, st.integers(0, 2**31 - 1), names)
def test_a_live_key_comes_back_and_lies_under_its_node_alone(role: str, node_id: int, boot_id: str) -> None:
    key = KEYS.live(role, node_id, boot_id)
    assert KEYS.parse_live(key) == (role, node_id, boot_id)
    assert key.startswith(KEYS.live_node_prefix(role, node_id))
    assert not KEYS.live(role, node_id * 10 + 1, boot_id).startswith(KEYS.live_node_prefix(role, node_id))


@given(st.binary(min_size=1).filter(lambda b: b.strip(b"\xff")), st.binary())
def test_prefix_end_is_the_first_key_after_all_with_the_prefix(prefix: bytes, rest: bytes) -> None:
    assert prefix <= prefix + rest < prefix_end(prefix)
    end = prefix_end(prefix)
    assert not end.startswith(prefix)
    assert end[:-1] == prefix[: len(end) - 1]  # nothing between the prefix's keys and its end
    assert end[-1] == prefix[len(end) - 1] + 1


@pytest.mark.parametrize(
    "key",
    [
        b"/kafscale/prod/p/00/1",
        b"/kafscale/prod/p/000102030405060708090a0b0c0d0e0f/",
        b"/kafscale/prod/p/000102030405060708090a0b0c0d0e0f/x",
        b"/kafscale/prod/p/zz0102030405060708090a0b0c0d0e0f/1",
        b"/kafscale/other/p/000102030405060708090a0b0c0d0e0f/1",
    ],
)
def test_a_key_that_is_not_ours_is_refused(key: bytes) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_head(key)


@pytest.mark.parametrize("namespace", ["", "a/b", "a b", "..", "@x", "ä", "x" * 101])
def test_a_namespace_that_would_leave_its_tree_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        Keyspace(namespace)


def test_a_segment_name_is_read_back_and_other_objects_are_none() -> None:
    found = KEYS.parse_segment(KEYS.segment_key("orders", 12, 2**40))
    assert found == SegmentName(topic="orders", partition=12, base=2**40, is_index=False)
    index = KEYS.parse_segment(KEYS.index_key("orders", 12, 0))
    assert index is not None
    assert index.is_index
    assert KEYS.parse_segment(KEYS.manifest_key(TOPIC, 1, 5, "u")) is None
    assert KEYS.parse_segment(KEYS.compacted_key(TOPIC, 1, 5, "u")) is None
    assert KEYS.parse_segment("production/orders/0/segment-00000000000000000000.kfs") is None
    assert KEYS.parse_segment("prod/orders/0/segment-0.kfs") is None


def test_a_file_of_lag_samples_says_its_time_in_folders_and_name() -> None:
    key = KEYS.lag_samples_key(1_700_000_123_456, "whole", "0a1b")
    assert key == "prod/@kafscale/lag/dt=2023-11-14/hour=22/221523-whole-0a1b.parquet"
    assert KEYS.parse_segment(key) is None


@given(st.integers(0, 4_000_000_000_000), st.sampled_from(("whole", "changes")))
def test_names_of_lag_samples_come_back_to_the_second(at_ms: int, kind: str) -> None:
    key = KEYS.lag_samples_key(at_ms, kind, "ff")
    assert key.startswith(KEYS.lag_hour_prefix(at_ms))
    assert KEYS.parse_lag_samples(key) == LagSamplesName(at_ms=at_ms // 1000 * 1000, kind=kind)


@pytest.mark.parametrize(
    "key",
    [
        "other/@kafscale/lag/dt=2023-11-14/hour=22/221523-whole-0a1b.parquet",
        "prod/@kafscale/lag/dt=2023-11-14/hour=22/notes.txt",
        "prod/@kafscale/lag/dt=2023-11-44/hour=22/221523-whole-0a1b.parquet",
        "prod/@kafscale/lag/dt=2023-11-14/hour=22/229923-whole-0a1b.parquet",
    ],
)
def test_what_is_no_file_of_lag_samples_is_none(key: str) -> None:
    assert KEYS.parse_lag_samples(key) is None


def test_a_compacted_segment_stands_in_its_topics_own_tree_and_its_index_beside_it() -> None:
    key = KEYS.compacted_key(TOPIC, 12, 5, "u")
    assert key.startswith(KEYS.compacted_prefix(TOPIC))
    assert not key.startswith(KEYS.topic_prefix("orders"))
    assert index_beside(key) == key.replace(".kfs", ".index")
    assert index_beside(KEYS.segment_key("orders", 12, 5)) == KEYS.index_key("orders", 12, 5)
