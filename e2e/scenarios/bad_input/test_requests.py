"""Names, partitions, offsets and other numbers that no client should send.

Law: any bytes end in the right Kafka error or in a clean close. Other connections go on, no process dies, and a
connection whose request was answered stays usable.
"""

from __future__ import annotations

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    create_topics,
    fetch,
    find_coordinator,
    offset_for_leader_epoch,
)

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import (
    CREATE_V,
    FETCH_V,
    INT32_MAX,
    INT32_MIN,
    TOPIC,
    ask_fetch,
    ask_list_offsets,
    ask_metadata,
    ask_produce,
    batch,
    create,
    fetch_body,
    produce_body,
    send,
)

pytestmark = pytest.mark.timeout(120)


BAD_NAMES = ["", "..", ".", "a/b", "../../etc", "%2e%2e/x y", "n" * 250, "nul\0", "ünïcode", "@kafscale"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_no_topic_anywhere(cluster: Cluster, raw: Raw, name: str) -> None:
    invalid, unknown = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before = objects_of(cluster)
    assert create(raw, name) == invalid
    assert ask_metadata(raw, name) == invalid
    assert send(raw, batch(), topic=name) in (unknown, invalid)
    assert ask_fetch(raw, topic=name)[0].error_code in (unknown, invalid)
    assert ask_list_offsets(raw, -1, topic=name)[0] in (unknown, invalid)
    assert objects_of(cluster) == before


OWN_TREE = "@kafscale"


def objects_of(cluster: Cluster) -> set[str]:
    """The topics and other trees that have objects, without upkeep's tree, which may appear at any time."""
    trees = {path.name for path in (cluster.data_dir / "objects" / "default").iterdir()}
    return trees - {OWN_TREE}


@pytest.mark.parametrize("part", [-1, 2, INT32_MAX, INT32_MIN])
def test_a_partition_that_is_not_there_is_unknown(raw: Raw, part: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(raw, batch(), part=part) == unknown
    assert ask_fetch(raw, part=part)[0].error_code == unknown
    assert ask_list_offsets(raw, -1, part=part)[0] == unknown


def test_one_partition_twice_in_a_produce_request_never_loses_or_doubles(raw: Raw) -> None:
    before = ask_list_offsets(raw, -1)[1]
    results = ask_produce(raw, produce_body((TOPIC, 0, batch()), (TOPIC, 0, batch())))
    good = [result.base_offset for result in results if result.error_code == 0]
    assert len(results) in (1, 2)
    assert len(set(good)) == len(good)
    assert ask_list_offsets(raw, -1)[1] == before + len(good)


def test_one_topic_twice_in_createtopics_is_refused(raw: Raw) -> None:
    topic = create_topics.CreateTopicsRequestTopic(name="twice", num_partitions=1, replication_factor=1)
    message = create_topics.CreateTopicsRequest(topics=[topic, topic])
    answer = raw.ask(ApiKey.CREATE_TOPICS, CREATE_V, create_topics.encode_request(message, CREATE_V))
    codes = {each.error_code for each in create_topics.decode_response(answer, CREATE_V).topics}
    assert codes == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(
    ("partitions", "replication", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (INT32_MAX, 1, ErrorCode.POLICY_VIOLATION),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers_in_createtopics(
    raw: Raw, partitions: int, replication: int, code: ErrorCode
) -> None:
    assert create(raw, "impossible", partitions=partitions, replication=replication) == code


@pytest.mark.parametrize("offset", [-1, -5, 2**62, -(2**63)])
def test_an_offset_that_cannot_be_is_out_of_range(raw: Raw, offset: int) -> None:
    (part,) = ask_fetch(raw, offset=offset)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert part.records is not None


@pytest.mark.parametrize(
    "wanted",
    [
        {"max_bytes": 0},
        {"max_bytes": -1},
        {"part_bytes": 0},
        {"part_bytes": -1},
        {"min_bytes": INT32_MAX, "max_bytes": 10},
        {"max_wait_ms": -1},
        {"min_bytes": -1},
    ],
    ids=str,
)
def test_odd_limits_still_give_the_first_batch_or_nothing(raw: Raw, wanted: dict[str, int]) -> None:
    (part,) = ask_fetch(raw, offset=0, **wanted)
    assert part.error_code == ErrorCode.NONE
    assert part.records is not None


def test_an_unknown_session_is_not_taken_for_known(raw: Raw) -> None:
    body = fetch_body(session_id=12345, epoch=7)
    answer = fetch.decode_response(raw.ask(ApiKey.FETCH, FETCH_V, [body]), FETCH_V)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_leader_epoch_from_the_future_is_unknown(raw: Raw) -> None:
    assert ask_fetch(raw, leader_epoch=INT32_MAX)[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("timestamp", [-1, -2, -3, 0, 1, 2**62])
def test_known_timestamps_are_answered(raw: Raw, timestamp: int) -> None:
    assert ask_list_offsets(raw, timestamp)[0] == ErrorCode.NONE


@pytest.mark.parametrize("timestamp", [-6, -7, -(2**63)])
def test_timestamps_that_mean_nothing_are_refused(raw: Raw, timestamp: int) -> None:
    code, offset = ask_list_offsets(raw, timestamp)
    assert code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)
    assert offset == -1


def test_an_epoch_from_the_future_ends_no_later_than_the_log(raw: Raw) -> None:
    wanted = offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=INT32_MAX
    )
    message = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[offset_for_leader_epoch.OffsetForLeaderEpochRequestTopic(topic=TOPIC, partitions=[wanted])]
    )
    body = offset_for_leader_epoch.encode_request(message, 3)
    answer = offset_for_leader_epoch.decode_response(raw.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, body), 3)
    result = answer.topics[0].partitions[0]
    assert result.error_code == ErrorCode.NONE
    assert result.leader_epoch < INT32_MAX
    assert result.end_offset in (-1, ask_list_offsets(raw, -1)[1])


# -- the rest --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key_type", [-1, 3, 127])
def test_a_coordinator_of_no_kind_is_an_invalid_request(raw: Raw, key_type: int) -> None:
    message = find_coordinator.FindCoordinatorRequest(key="g", key_type=key_type)
    answer = raw.ask(ApiKey.FIND_COORDINATOR, 1, find_coordinator.encode_request(message, 1))
    assert find_coordinator.decode_response(answer, 1).error_code == ErrorCode.INVALID_REQUEST
