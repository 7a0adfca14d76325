"""Which transactions hang, and what the client says where it cannot ask. Brokers are fakes that answer by API."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kafscale.client import transactions
from kafscale.client.admin_client import KafkaTrouble, Passing, failure
from kafscale.client.transactions import (
    OpenTransaction,
    abort_transaction,
    find_hanging,
    terminate_transaction,
)
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    api_versions,
    describe_producers,
    describe_transactions,
    find_coordinator,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)

NOW_MS = 10_000_000
ADDRESS = ("127.0.0.1", 9092)
ALL = (describe_producers, describe_transactions, list_transactions, write_txn_markers)
TRANSACTION = OpenTransaction(topic="t", partition=0, producer_id=7, producer_epoch=3, coordinator_epoch=1)

Producer = describe_producers.DescribeProducersResponseProducerState
State = describe_transactions.DescribeTransactionsResponseTransactionState
Topic = describe_transactions.DescribeTransactionsResponseTopic


class Brokers:
    """One broker. `producers`: the answers to DescribeProducers, of which the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = SimpleNamespace(nodes=[SimpleNamespace(id=1, host=ADDRESS[0], port=ADDRESS[1])])
        self.served = {api.API_KEY: api.REQUEST_VERSIONS for api in ALL}
        self.producers: list[list[Producer]] = [[]]
        self.ids: dict[str, State] = {}
        self.code = ErrorCode.NONE
        self.sent: list[Any] = []
        monkeypatch.setattr(transactions, "asked", lambda _, *words: self.answer(*words))
        monkeypatch.setattr(transactions, "asked_at", lambda _, __, *words: self.answer(*words))
        monkeypatch.setattr(transactions, "asked_of_all", lambda _, *words: [self.answer(*words)])
        leaders = {("t", 0): ADDRESS}
        monkeypatch.setattr(transactions, "_leaders", lambda *_: leaders)
        monkeypatch.setattr(transactions, "topic_names", lambda _: ["t"])

    def answer(self, _what: str, api: ModuleType, message: Any, _version: int) -> Any:
        self.sent.append(message)
        by_api: dict[ModuleType, Callable[[Any], Any]] = {
            api_versions: self._versions,
            describe_producers: self._producers,
            list_transactions: self._list,
            describe_transactions: self._describe,
            find_coordinator: self._coordinators,
            write_txn_markers: self._markers,
            init_producer_id: lambda _: init_producer_id.InitProducerIdResponse(error_code=self.code),
        }
        return by_api[api](message)

    def _versions(self, _: Any) -> Any:
        rows = [api_versions.ApiVersionsResponseVersion(key, *both) for key, both in self.served.items()]
        return api_versions.ApiVersionsResponse(api_keys=rows)

    def _producers(self, _: Any) -> Any:
        now = self.producers.pop(0) if len(self.producers) > 1 else self.producers[0]
        part = describe_producers.DescribeProducersResponsePartition(active_producers=now)
        topic = describe_producers.DescribeProducersResponseTopic("t", [part])
        return describe_producers.DescribeProducersResponse(topics=[topic])

    def _list(self, message: Any) -> Any:
        listed = [
            list_transactions.ListTransactionsResponseTransactionState(name, state.producer_id, "Ongoing")
            for name, state in self.ids.items()
            if state.producer_id in message.producer_id_filters
        ]
        return list_transactions.ListTransactionsResponse(transaction_states=listed)

    def _describe(self, message: Any) -> Any:
        missing = int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        found = [
            self.ids.get(name, State(transactional_id=name, error_code=missing))
            for name in message.transactional_ids
        ]
        return describe_transactions.DescribeTransactionsResponse(transaction_states=found)

    def _coordinators(self, message: Any) -> Any:
        entry = find_coordinator.FindCoordinatorResponseCoordinator
        found = [
            entry(key=key, node_id=1, host=ADDRESS[0], port=ADDRESS[1]) for key in message.coordinator_keys
        ]
        return find_coordinator.FindCoordinatorResponse(coordinators=found)

    def _markers(self, _: Any) -> Any:
        part = write_txn_markers.WriteTxnMarkersResponseWritableMarkerPartitionResult(0, int(self.code))
        topic = write_txn_markers.WriteTxnMarkersResponseWritableMarkerTopicResult("t", [part])
        marker = write_txn_markers.WriteTxnMarkersResponseWritableMarkerResult(7, [topic])
        return write_txn_markers.WriteTxnMarkersResponse(markers=[marker])

    def hanging(self) -> list[dict[str, Any]]:
        client: Any = self
        return find_hanging(client, NOW_MS, older_ms=60_000)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch)


def open_since(age_ms: int, start: int = 40) -> Producer:
    return Producer(
        producer_id=7,
        producer_epoch=3,
        last_sequence=0,
        last_timestamp=NOW_MS - age_ms,
        coordinator_epoch=1,
        current_txn_start_offset=start,
    )


def test_an_old_transaction_of_an_id_that_nobody_has_hangs(brokers: Brokers) -> None:
    brokers.producers = [[open_since(125_000), Producer(producer_id=8, last_timestamp=1)]]
    (row,) = brokers.hanging()
    assert (row["topic"], row["partition"], row["producer_id"], row["start_offset"]) == ("t", 0, 7, 40)
    assert (row["producer_epoch"], row["coordinator_epoch"], row["duration_min"]) == (3, 1, 2)


def test_a_young_transaction_is_not_a_candidate(brokers: Brokers) -> None:
    brokers.producers = [[open_since(60_000)]]
    assert brokers.hanging() == []


@pytest.mark.parametrize(("partitions", "hangs"), [([0], False), ([1], True), ([], True)])
def test_a_transaction_hangs_if_that_of_its_id_does_not_name_the_partition(
    brokers: Brokers, partitions: list[int], hangs: bool
) -> None:
    brokers.producers = [[open_since(60_001)]]
    brokers.ids["billing"] = State(
        transactional_id="billing",
        producer_id=7,
        transaction_state="Ongoing",
        topics=[Topic("t", partitions)],
    )
    assert len(brokers.hanging()) == hangs


def test_a_transaction_that_ends_meanwhile_does_not_hang(brokers: Brokers) -> None:
    brokers.producers = [[open_since(60_001)], []]
    assert brokers.hanging() == []


def test_a_transaction_that_ends_before_the_next_one_of_its_producer_does_not_hang(brokers: Brokers) -> None:
    brokers.producers = [[open_since(60_001)], [open_since(60_001, start=44)]]
    assert brokers.hanging() == []


def test_partitions_are_asked_before_the_coordinators_and_once_more_after_them(brokers: Brokers) -> None:
    brokers.producers = [[open_since(60_001)]]
    brokers.ids["billing"] = State(transactional_id="billing", producer_id=7)
    brokers.hanging()
    wanted = (
        describe_producers.DescribeProducersRequest,
        list_transactions.ListTransactionsRequest,
        describe_transactions.DescribeTransactionsRequest,
        describe_producers.DescribeProducersRequest,
    )
    assert [type(each) for each in brokers.sent if isinstance(each, wanted)] == list(wanted)


def test_an_id_that_cannot_be_described_is_no_id_that_nobody_has(brokers: Brokers) -> None:
    brokers.producers = [[open_since(60_001)]]
    refused = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    brokers.ids["billing"] = State(transactional_id="billing", producer_id=7, error_code=refused)
    with pytest.raises(KafkaTrouble, match="billing"):
        brokers.hanging()


def test_where_transactions_are_off_the_sentence_names_the_setting(brokers: Brokers) -> None:
    brokers.served[list_transactions.API_KEY] = (-1, -1)
    with pytest.raises(KafkaTrouble, match="KAFSCALE_TRANSACTIONS=1"):
        brokers.hanging()


def test_an_older_kafka_without_the_pattern_is_a_sentence(brokers: Brokers) -> None:
    brokers.served[list_transactions.API_KEY] = (0, 1)
    client: Any = brokers
    with pytest.raises(KafkaTrouble, match="ListTransactions in versions 0 to 1"):
        transactions.list_all_transactions(client, pattern="a.*")


def test_an_abort_names_what_it_aborts(brokers: Brokers) -> None:
    client: Any = brokers
    abort_transaction(client, TRANSACTION)
    (marker,) = brokers.sent[-1].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 1)
    assert marker.transaction_result is False


def test_an_abort_that_is_refused_says_who_ends_the_transaction(brokers: Brokers) -> None:
    client: Any = brokers
    brokers.code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(KafkaTrouble, match="a coordinator knows this transaction"):
        abort_transaction(client, TRANSACTION)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "PrepareAbort"])
def test_only_a_transaction_under_way_is_terminated(brokers: Brokers, state: str) -> None:
    client: Any = brokers
    brokers.ids["billing"] = State(transactional_id="billing", transaction_state=state)
    with pytest.raises(KafkaTrouble, match=f"its state is {state}"):
        terminate_transaction(client, "billing", NOW_MS)
    with pytest.raises(KafkaTrouble, match="does not exist"):
        terminate_transaction(client, "nobody", NOW_MS)
    assert not any(isinstance(each, init_producer_id.InitProducerIdRequest) for each in brokers.sent)


def test_a_termination_keeps_the_timeout_of_the_id(brokers: Brokers) -> None:
    client: Any = brokers
    brokers.ids["billing"] = State(
        transactional_id="billing", transaction_state="Ongoing", transaction_timeout_ms=1_234
    )
    terminate_transaction(client, "billing", NOW_MS)
    assert brokers.sent[-1].transaction_timeout_ms == 1_234


def test_a_transaction_that_still_ends_is_asked_again() -> None:
    assert isinstance(failure("x", ErrorCode.CONCURRENT_TRANSACTIONS), Passing)


def test_a_partition_that_the_topic_lacks_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = SimpleNamespace(name="t", partitions=[SimpleNamespace(id=0, leader=None)])
    monkeypatch.setattr(transactions, "find_topics", lambda *_: [topic])
    client: Any = object()
    with pytest.raises(KafkaTrouble, match="topic 't' has no partition 1"):
        transactions._leaders(client, ["t"], 1)
    with pytest.raises(Passing, match="LEADER_NOT_AVAILABLE"):
        transactions._leaders(client, ["t"], 0)
