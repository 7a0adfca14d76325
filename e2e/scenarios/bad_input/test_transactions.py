"""Requests of transactions that no client should send.

Law: each gets the right Kafka error or a clean close. Between the tests another producer commits transactions, and what
it wrote is visible. A mistake leaves nothing open: the last stable offset reaches the end again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_offsets,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)

from e2e.harness.api_requests import ROWS
from e2e.harness.cluster import Cluster
from e2e.harness.oracles import request_frame
from e2e.harness.prepared import World
from e2e.harness.raw import Raw
from e2e.harness.raw_producer import RETRY, Producer
from e2e.harness.requests import INT32_MAX, INT32_MIN, TOPIC, ask, batch, create, usable
from e2e.harness.services import until

pytestmark = pytest.mark.timeout(120)

PART, HEALTHY_PART = 1, 0
OTHER = "of-transactions"
NUMBERS = count()
TIMEOUT_MS = 60_000
NONE = ErrorCode.NONE
LONG = "n" * 1_025
IMPOSSIBLE_IDS = ["", LONG, "ü" * 513]
APIS: dict[ModuleType, range] = {
    init_producer_id: range(6),
    add_partitions_to_txn: range(6),
    add_offsets_to_txn: range(5),
    end_txn: range(6),
    write_txn_markers: range(1, 3),
    txn_offset_commit: range(6),
    describe_transactions: range(1),
    list_transactions: range(3),
}
UNKNOWN, ILLEGAL = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST


def stable_end(raw: Raw, *, committed: bool = True, part: int = PART) -> int:
    wanted = list_offsets.ListOffsetsRequestPartition(partition_index=part, timestamp=-1)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[list_offsets.ListOffsetsRequestTopic(name=TOPIC, partitions=[wanted])],
    )
    (found,) = ask(raw, list_offsets, 7, request).topics[0].partitions
    assert found.error_code == NONE
    return int(found.offset)


def nothing_is_open(raw: Raw, part: int) -> bool:
    return stable_end(raw, part=part) == stable_end(raw, committed=False, part=part)


def state_of(raw: Raw, name: str) -> Any:
    request = describe_transactions.DescribeTransactionsRequest([name])
    (found,) = ask(raw, describe_transactions, 0, request).transaction_states
    return found


@pytest.fixture(scope="module")
def healthy(cluster: Cluster) -> Iterator[Producer]:
    with Raw.to(cluster.bootstrap) as raw:
        producer = Producer(raw, "healthy")
        assert producer.init() == NONE
        commit(producer)
        yield producer


def commit(healthy: Producer) -> None:
    healthy.write(HEALTHY_PART)
    assert healthy.end() == NONE
    until("its records are visible", lambda: nothing_is_open(healthy.raw, HEALTHY_PART))


@pytest.fixture(autouse=True)
def undisturbed(healthy: Producer) -> Iterator[None]:
    yield
    commit(healthy)
    until("what a test began has ended", lambda: nothing_is_open(healthy.raw, PART))


@pytest.fixture
def producer(raw: Raw) -> Iterator[Producer]:
    """One of its own for each test, without a transaction. What the test begins is aborted."""
    producer = Producer(raw, f"id-{next(NUMBERS)}")
    assert producer.init() == NONE
    yield producer
    assert usable(raw)
    assert producer.init() == NONE


# -- ids, timeouts, producers ------------------------------------------------------------------------


@pytest.mark.parametrize("name", IMPOSSIBLE_IDS, ids=["empty", "1025-letters", "1026-bytes"])
def test_an_id_that_cannot_be_is_an_invalid_request(raw: Raw, producer: Producer, name: str) -> None:
    other = Producer(raw, name, producer.producer_id, producer.epoch)
    assert {other.init(version) for version in range(6)} == {ILLEGAL}
    assert {code for version in range(6) for code in other.add((TOPIC, PART), version=version)} == {ILLEGAL}
    assert {other.add_group("g", version) for version in range(5)} == {ILLEGAL}
    assert {other.end(version=version) for version in range(6)} == {ILLEGAL}
    assert state_of(raw, name).error_code == ILLEGAL
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert {code for version in range(6) for code in other.put("g", (TOPIC, 0), version=version)} == {unknown}
    assert {code for version in (9, 12) for code in other.send(other.records(), version=version)} == {unknown}


def test_an_id_of_1024_bytes_and_one_of_strange_letters_are_ids(raw: Raw) -> None:
    for name in ("n" * 1_024, "ü" * 512, "nul\0", "a/b", "%2e%2e", "../../etc", " "):
        other = Producer(raw, name)
        assert other.init() == NONE
        other.write()
        assert other.end() == NONE
        assert state_of(raw, name).transactional_id == name


def test_a_timeout_that_cannot_be_is_refused(raw: Raw) -> None:
    codes = {
        Producer(raw, "late").init(version, transaction_timeout_ms=timeout_ms)
        for version in range(6)
        for timeout_ms in (0, -1, INT32_MIN, 900_001, INT32_MAX)
    }
    assert codes == {ErrorCode.INVALID_TRANSACTION_TIMEOUT}
    assert state_of(raw, "late").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (5, -1, ILLEGAL),
        (-1, 0, ILLEGAL),
        (-2, -2, ErrorCode.PRODUCER_FENCED),
        (2**63 - 1, 32_767, ErrorCode.PRODUCER_FENCED),
        (-(2**63), -32_768, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_producer_that_recovers_as_nobody_is_fenced(
    producer: Producer, producer_id: int, epoch: int, code: ErrorCode
) -> None:
    assert producer.init(4, producer_id=producer_id, producer_epoch=epoch) == code
    old = ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
    assert producer.init(3, producer_id=producer_id, producer_epoch=epoch) == old


WRONG_PRODUCERS = [
    ({"transactional_id": "nobody"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ({"producer_id": 2**63 - 1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ({"producer_id": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ({"producer_id": -(2**63)}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ({"producer_epoch": -1}, ErrorCode.PRODUCER_FENCED),
    ({"producer_epoch": -32_768}, ErrorCode.PRODUCER_FENCED),
    ({"producer_epoch": 32_767}, ErrorCode.PRODUCER_FENCED),
    ({"producer_epoch": 32_766}, ErrorCode.PRODUCER_FENCED),
]


@pytest.mark.parametrize(("wrong", "code"), WRONG_PRODUCERS, ids=str)
def test_the_wrong_producer_changes_nothing(
    raw: Raw, producer: Producer, wrong: dict[str, Any], code: ErrorCode
) -> None:
    old = ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
    for version in range(6):
        word = old if version < 2 else code
        assert producer.add((TOPIC, PART), version=version, **wrong) == [word]
        assert producer.end(commit=False, version=version, **wrong) == word
        assert producer.put("g", (TOPIC, 0), version=version, **wrong) == [old]
    assert {producer.add_group("g", version, **wrong) for version in (2, 3, 4)} == {code}
    found = state_of(raw, producer.name)
    assert (found.transaction_state, found.producer_epoch) == ("Empty", producer.epoch)


# -- what joins ----------------------------------------------------------------------------------------


BAD_PLACES = [
    *(("no-such-topic", 0), ("", 0), ("..", 0), ("a/b", 0), ("n" * 30_000, 0), ("nul\0", 0)),
    *((TOPIC, index) for index in (-1, 2, INT32_MAX, INT32_MIN)),
]


@pytest.mark.parametrize("version", [0, 3, 5])
def test_with_a_partition_that_is_not_there_none_joins(raw: Raw, producer: Producer, version: int) -> None:
    for bad in BAD_PLACES:
        found = producer.add((TOPIC, PART), bad, version=version)
        assert found == [ErrorCode.OPERATION_NOT_ATTEMPTED, UNKNOWN], bad
    assert state_of(raw, producer.name).transaction_state == "Empty"


def test_a_partition_that_is_named_ten_thousand_times_joins_once(raw: Raw, producer: Producer) -> None:
    assert set(producer.add(*[(TOPIC, PART)] * 10_001)) == {NONE}
    assert [(each.topic, each.partitions) for each in state_of(raw, producer.name).topics] == [
        (TOPIC, [PART])
    ]
    assert producer.end(version=3) == NONE


def test_no_partitions_are_no_transaction(raw: Raw, producer: Producer) -> None:
    assert [producer.add(version=version) for version in range(6)] == [[]] * 6
    assert state_of(raw, producer.name).transaction_state == "Empty"
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[])
    assert ask(raw, add_partitions_to_txn, 5, request).results_by_transaction == []


def test_thousands_of_ids_in_one_request_are_answered_each(raw: Raw) -> None:
    topics = [add_partitions_to_txn.AddPartitionsToTxnRequestTopic(name=TOPIC, partitions=[0])]
    ids = [
        add_partitions_to_txn.AddPartitionsToTxnRequestTransaction(
            transactional_id=f"nobody-{number}", producer_id=5, verify_only=bool(number % 2), topics=topics
        )
        for number in range(5_000)
    ]
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=ids)
    found = ask(raw, add_partitions_to_txn, 5, request).results_by_transaction
    assert [each.transactional_id for each in found] == [each.transactional_id for each in ids]
    codes = {
        part.partition_error_code for each in found for part in each.topic_results[0].results_by_partition
    }
    assert codes <= {ErrorCode.INVALID_PRODUCER_ID_MAPPING, *RETRY}


def test_a_transaction_of_groups_with_strange_names_ends(raw: Raw, producer: Producer) -> None:
    for group in ("", "nul\0", "a/b", "../..", "ü" * 512):
        assert producer.add_group(group) == NONE, group
    assert producer.end(version=3) == NONE
    until("nothing is closing", lambda: state_of(raw, producer.name).transaction_state == "CompleteCommit")


def test_a_group_that_cannot_be_does_not_join(producer: Producer) -> None:
    assert {producer.add_group(LONG, version) for version in range(5)} == {ErrorCode.INVALID_GROUP_ID}
    for version in range(6):
        for group in ("", LONG):
            assert producer.put(group, (TOPIC, 0), version=version) == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize(
    ("place", "changes", "code"),
    [
        (("no-such-topic", 0), {}, UNKNOWN),
        ((TOPIC, -1), {}, UNKNOWN),
        ((TOPIC, 2), {}, UNKNOWN),
        ((TOPIC, INT32_MAX), {}, UNKNOWN),
        ((TOPIC, 0), {"committed_metadata": "m" * 4_097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ((TOPIC, 0), {"generation_id": 3, "member_id": "nobody"}, ErrorCode.ILLEGAL_GENERATION),
        ((TOPIC, 0), {"generation_id": INT32_MAX}, ErrorCode.ILLEGAL_GENERATION),
    ],
    ids=str,
)
def test_an_offset_that_cannot_be_committed_is_refused_alone(
    producer: Producer, place: tuple[str, int], changes: dict[str, Any], code: ErrorCode
) -> None:
    group = f"of-{producer.name}"
    for version in (3, 4, 5):
        assert producer.put(group, place, version=version, **changes) == [code]
    if not {"generation_id"} & changes.keys() and "committed_metadata" not in changes:
        assert producer.put(group, place, (TOPIC, 1)) == [code, NONE]
        assert producer.end() == NONE


# -- ends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_the_end_of_nothing_is_no_end(producer: Producer, version: int) -> None:
    """Only a client of KIP-890 may abort to be sure."""
    assert producer.end(version=version) == ErrorCode.INVALID_TXN_STATE
    epoch = producer.epoch
    abort = producer.end(commit=False, version=version)
    assert abort == (NONE if version == 5 else ErrorCode.INVALID_TXN_STATE)
    assert producer.epoch == epoch + (version == 5)


# -- records -------------------------------------------------------------------------------------------


def test_records_that_no_transaction_takes_are_refused(raw: Raw, producer: Producer) -> None:
    end = stable_end(raw, committed=False)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    good, other = producer.records(), ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.send(good, tid=None) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert producer.send(good, version=9) == [ErrorCode.INVALID_TXN_STATE], "it was not added"
    assert producer.send(producer.records(producer_id=2**40)) == [other]
    assert producer.send(producer.records(producer_epoch=producer.epoch + 1)) == [fenced]
    assert producer.send(good, tid="nobody") == [other]
    assert set(producer.send(good, producer.records(producer_id=2**40))) == {other}, "of two producers"
    assert producer.send(producer.records(sequence=9)) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert stable_end(raw, committed=False) == end


@pytest.mark.parametrize(
    "changes",
    [
        {"control": True},
        {"control": True, "transactional": False},
        {"producer_id": -1, "producer_epoch": -1},
        {"producer_id": -1, "producer_epoch": 0},
        {"producer_id": -(2**63)},
        {"producer_epoch": -1},
        {"sequence": -1},
        {"sequence": INT32_MIN},
    ],
    ids=str,
)
def test_batches_that_no_client_may_send_are_invalid_records(
    raw: Raw, producer: Producer, changes: dict[str, Any]
) -> None:
    """A marker of a client would end a transaction for readers, and for nobody else."""
    end = stable_end(raw, committed=False)
    for version in (9, 12):
        assert producer.send(producer.records(**changes), version=version) == [ErrorCode.INVALID_RECORD]
    assert stable_end(raw, committed=False) == end
    assert state_of(raw, producer.name).transaction_state == "Empty"


def test_a_plain_batch_may_not_come_between_those_of_its_producers_transaction(producer: Producer) -> None:
    producer.write()
    plain = producer.records(sequence=1, transactional=False)
    assert producer.send(plain) == [ErrorCode.INVALID_TXN_STATE]
    assert producer.send(batch()) == [NONE], "of no producer"
    assert producer.end() == NONE


# -- the operator's ------------------------------------------------------------------------------------


def marked(raw: Raw, *places: tuple[str, int], version: int = 1, **fields: Any) -> list[int]:
    said = {
        "producer_id": 5,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        **fields,
    }
    topics = [
        write_txn_markers.WriteTxnMarkersRequestWritableMarkerTopic(name=topic, partition_indexes=[index])
        for topic, index in places
    ]
    marker = write_txn_markers.WriteTxnMarkersRequestWritableMarker(topics=topics, **said)
    answer = ask(raw, write_txn_markers, version, write_txn_markers.WriteTxnMarkersRequest([marker]))
    return [each.error_code for topic in answer.markers[0].topics for each in topic.partitions]


@pytest.mark.parametrize("version", [1, 2])
def test_markers_that_nobody_may_write_are_not_written(raw: Raw, producer: Producer, version: int) -> None:
    end = stable_end(raw, committed=False)
    commit = marked(raw, (TOPIC, PART), version=version, transaction_result=True)
    assert commit == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    bad = [("no-such-topic", 0), ("", 0), (TOPIC, -1), (TOPIC, 2), (TOPIC, INT32_MAX), (TOPIC, INT32_MIN)]
    assert marked(raw, *bad, version=version) == [UNKNOWN] * len(bad)
    for fields in ({}, {"producer_id": -1, "producer_epoch": -1}, {"coordinator_epoch": INT32_MIN}):
        assert marked(raw, (TOPIC, PART), version=version, **fields) == [NONE], "nothing is open"
    assert stable_end(raw, committed=False) == end


def test_a_transaction_that_a_coordinator_has_is_not_aborted_by_markers(raw: Raw, producer: Producer) -> None:
    producer.write()
    wanted = describe_producers.DescribeProducersRequestTopic(name=TOPIC, partition_indexes=[PART])
    found = ask(raw, describe_producers, 0, describe_producers.DescribeProducersRequest([wanted]))
    open_there = {each.producer_id for each in found.topics[0].partitions[0].active_producers}
    assert producer.producer_id in open_there
    mark = partial(marked, raw, (TOPIC, PART), producer_id=producer.producer_id)
    fenced = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert mark(producer_epoch=producer.epoch) == fenced
    assert mark(producer_epoch=32_767) == fenced
    assert mark(producer_epoch=producer.epoch, coordinator_epoch=INT32_MIN) == fenced
    assert mark(producer_epoch=-1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end() == NONE


def test_many_markers_for_a_partition_are_answered_each(raw: Raw) -> None:
    codes = marked(raw, *[(TOPIC, PART)] * 5_000, *[("no-such-topic", 7)] * 5_000)
    assert codes == [NONE] * 5_000 + [UNKNOWN] * 5_000


def test_descriptions_of_many_ids_are_one_of_each(raw: Raw, producer: Producer) -> None:
    names = [producer.name, "nobody", "", LONG] * 5_000
    request = describe_transactions.DescribeTransactionsRequest(names)
    found = ask(raw, describe_transactions, 0, request).transaction_states
    assert [(each.transactional_id, each.error_code) for each in found] == [
        (producer.name, NONE),
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ILLEGAL),
        (LONG, ILLEGAL),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"state_filters": [f"Dreaming-{number}" for number in range(50_000)]},
        {"state_filters": [""]},
        {"producer_id_filters": list(range(2**62, 2**62 + 50_000))},
        {"duration_filter": 2**63 - 1},
        {"transactional_id_pattern": "(a*)*(a*)*b"},
        {"transactional_id_pattern": "x*" * 200_000},
    ],
    ids=["states", "no-state", "producers", "duration", "pattern", "long-pattern"],
)
def test_a_list_of_what_cannot_be_is_empty(raw: Raw, producer: Producer, fields: dict[str, Any]) -> None:
    answer = ask(raw, list_transactions, 2, list_transactions.ListTransactionsRequest(**fields))
    assert (answer.error_code, answer.transaction_states) == (NONE, [])
    assert set(answer.unknown_state_filters) == set(fields.get("state_filters", ()))


def test_a_pattern_that_is_none_is_refused(raw: Raw) -> None:
    for pattern in ("(", "[", "a{1001}", "(?=a)"):
        request = list_transactions.ListTransactionsRequest(transactional_id_pattern=pattern)
        answer = ask(raw, list_transactions, 2, request)
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION, pattern


# -- bytes -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> World:
    """Names that exist, for ordinary requests."""
    with Raw.to(cluster.bootstrap) as raw:
        until("the topic is there", lambda: create(raw, OTHER) in (0, 36))
    return World(topic=OTHER, group=OTHER, dry=True)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.NAME)
def test_a_request_that_is_cut_short_ends_the_connection(
    cluster: Cluster, world: World, api: ModuleType
) -> None:
    for version in APIS[api]:
        whole = request_frame(api.API_KEY, version, 7, ROWS[api.API_KEY].content(world, version))
        head = len(request_frame(ApiKey.LIST_GROUPS, 0, 7, {})) + (version >= api.FLEXIBLE_FROM)
        for size in range(head, len(whole), 5):
            with Raw.to(cluster.bootstrap) as raw:
                raw.frame(whole[:size])
                assert raw.is_closed(), (version, size)


@pytest.mark.parametrize("elements", [INT32_MAX, 1_000_000, -2, INT32_MIN])
@pytest.mark.parametrize(
    ("key", "before"),
    [
        (ApiKey.ADD_PARTITIONS_TO_TXN, b"\0\1t" + bytes(10)),
        (ApiKey.TXN_OFFSET_COMMIT, b"\0\1t\0\1g" + bytes(10)),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else None,
)
def test_a_count_of_elements_that_are_not_there_closes(
    raw: Raw, key: ApiKey, before: bytes, elements: int
) -> None:
    raw.request(key, 0, [before + elements.to_bytes(4, "big", signed=True)])
    assert raw.is_closed()


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.END_TXN,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.WRITE_TXN_MARKERS,
    ],
)
def test_a_null_where_none_may_be_closes(cluster: Cluster, key: ApiKey) -> None:
    """An id or, of WriteTxnMarkers, the list. Before version 3 and since, when texts became compact."""
    for version, null in ((1, b"\xff\xff"), (3, b"\0")):
        if key is ApiKey.WRITE_TXN_MARKERS:
            version, null = 1, b"\0"
        with Raw.to(cluster.bootstrap) as raw:
            raw.request(key, version, [null + bytes(20)])
            assert raw.is_closed(), version
