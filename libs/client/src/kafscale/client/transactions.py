"""Transactions of producers: which exist, what partitions know of them, and the end of one that hangs.

A transaction hangs if a partition has it open and no coordinator would end it: no transactional id has its producer id,
or the transaction of that id does not name the partition. KIP-664 and Kafka's TransactionsCommand have the same rule.
AdminClient has none of these requests, so they are sent by hand, each to the broker that Kafka would ask.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import ModuleType
from typing import Final

from kafscale.client.admin_client import (
    ANSWER_TIMEOUT_S,
    Client,
    KafkaTrouble,
    asked,
    asked_at,
    asked_of_all,
    changing,
    failure,
    patiently,
)
from kafscale.client.topics import Row, TopicPart, find_topics, of_topic, topic_names
from kafscale.runtime.addresses import join_address
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

ONGOING: Final = "Ongoing"
API_VERSIONS_VERSION: Final = 0
FIND_COORDINATOR_VERSION: Final = 4
OF_TRANSACTION: Final = 1
"""The kind of key of FindCoordinator."""
DESCRIBE_VERSION: Final = 0
PRODUCERS_VERSION: Final = 0
MARKERS_VERSION: Final = 1
INIT_VERSION: Final = 4
DURATION_VERSION: Final = 1
PATTERN_VERSION: Final = 2
NO_FILTER: Final = -1
PLACES_AT_ONCE: Final = 500
IDS_AT_ONCE: Final = 500
OFF: Final = (
    "transactions are off in this cluster; set KAFSCALE_TRANSACTIONS=1 for its front doors, produce services and "
    "coordinators (docs/transactions.md)"
)
_FENCED: Final = (
    "a coordinator knows this transaction and ends it itself; `kafscale transactions forceTerminateTransaction` ends "
    "one that is under way"
)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """What WriteTxnMarkers must name to abort it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def of_id(name: str) -> str:
    return f"transactional id '{name}'"


def of_partition(place: TopicPart) -> str:
    return f"partition {place[0]}/{place[1]}"


def list_all_transactions(
    client: Client, *, longer_ms: int = NO_FILTER, pattern: str = "", producer_ids: Iterable[int] = ()
) -> list[Row]:
    """By id: transactional_id, coordinator, producer_id, transaction_state. Asks every broker.

    `longer_ms`: only transactions that have run for longer. `pattern`: a regular expression for the whole id.
    """
    version = PATTERN_VERSION if pattern else DURATION_VERSION if longer_ms > NO_FILTER else 0
    _check_served(client, {list_transactions: version})
    message = list_transactions.ListTransactionsRequest(
        producer_id_filters=list(producer_ids),
        duration_filter=longer_ms,
        transactional_id_pattern=pattern or None,
    )

    def checked() -> dict[str, Row]:
        answers = asked_of_all(client, "the list of transactions", list_transactions, message, version)
        found = dict[str, Row]()
        for node, answer in zip(client.cluster.nodes, answers, strict=True):
            if answer.error_code != ErrorCode.NONE:
                where = join_address(node.host, node.port)
                raise failure(f"the transactions of {where}", answer.error_code)
            for each in answer.transaction_states:
                found[each.transactional_id] = {
                    "transactional_id": each.transactional_id,
                    "coordinator": node.id,
                    "producer_id": each.producer_id if each.producer_id >= 0 else None,
                    "transaction_state": each.transaction_state,
                }
        return found

    found = patiently(checked)
    return [found[name] for name in sorted(found)]


def describe_transaction(client: Client, name: str, now_ms: int) -> Row:
    """Raises KafkaTrouble for an id that does not exist."""
    row = describe_transactions_of(client, [name], now_ms)[name]
    if row is None:
        raise failure(of_id(name), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return row


def describe_transactions_of(client: Client, names: Sequence[str], now_ms: int) -> dict[str, Row | None]:
    """None: the id does not exist."""
    _check_served(client, {describe_transactions: DESCRIBE_VERSION})

    def checked() -> dict[str, Row | None]:
        found = dict[str, Row | None]()
        for at in range(0, len(names), IDS_AT_ONCE):
            for (node, address), some in _by_coordinator(client, names[at : at + IDS_AT_ONCE]).items():
                message = describe_transactions.DescribeTransactionsRequest(some)
                what = "the transactions"
                answer = asked_at(client, address, what, describe_transactions, message, DESCRIBE_VERSION)
                for each in answer.transaction_states:
                    found[each.transactional_id] = _row_of(node, each, now_ms)
        return found

    return patiently(checked)


def _by_coordinator(client: Client, names: Sequence[str]) -> dict[tuple[int, Address], list[str]]:
    """The ids of each coordinator: its number and address."""
    message = find_coordinator.FindCoordinatorRequest(key_type=OF_TRANSACTION, coordinator_keys=list(names))
    answer = asked(client, "the coordinators", find_coordinator, message, FIND_COORDINATOR_VERSION)
    found = defaultdict[tuple[int, Address], list[str]](list)
    for each in answer.coordinators:
        if each.error_code != ErrorCode.NONE:
            raise failure(of_id(each.key), each.error_code, each.error_message)
        found[each.node_id, (each.host, each.port)].append(each.key)
    return found


def _row_of(
    coordinator: int, state: describe_transactions.DescribeTransactionsResponseTransactionState, now_ms: int
) -> Row | None:
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if state.error_code != ErrorCode.NONE:
        raise failure(of_id(state.transactional_id), state.error_code)
    started_ms = state.transaction_start_time_ms
    return {
        "coordinator_id": coordinator,
        "transactional_id": state.transactional_id,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "transaction_state": state.transaction_state,
        "transaction_timeout_ms": state.transaction_timeout_ms,
        "current_transaction_start_time": _time(started_ms),
        "transaction_duration_ms": now_ms - started_ms if started_ms >= 0 else None,
        "topic_partitions": [
            f"{topic.topic}-{partition}" for topic in state.topics for partition in topic.partitions
        ],
    }


def describe_partition_producers(
    client: Client, topic: str, partition: int, broker_id: int | None = None
) -> list[Row]:
    """A row for each producer that the partition knows, by producer id. `broker_id`: instead of the leader."""
    _check_served(client, {describe_producers: PRODUCERS_VERSION})
    leaders = _leaders(client, [topic], partition)
    if broker_id is not None:
        leaders = dict.fromkeys(leaders, _address_of(client, broker_id))
    return _producers(client, leaders)


def _leaders(client: Client, topics: Sequence[str], partition: int | None) -> dict[TopicPart, Address]:
    """Raises KafkaTrouble for a partition that does not exist, or has no leader."""
    found = dict[TopicPart, Address]()
    for topic in find_topics(client, topics):
        for part in topic.partitions:
            if partition is not None and part.id != partition:
                continue
            place = topic.name, part.id
            if part.leader is None:
                raise failure(of_partition(place), ErrorCode.LEADER_NOT_AVAILABLE)
            found[place] = part.leader.host, part.leader.port
    if partition is not None and not found:
        sentence = f"{of_topic(topics[0])} has no partition {partition}"
        raise KafkaTrouble(sentence, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return found


def _address_of(client: Client, broker_id: int) -> Address:
    for node in client.cluster.nodes:
        if node.id == broker_id:
            return node.host, node.port
    sentence = f"there is no broker {broker_id}; `kafscale brokers` shows all"
    raise KafkaTrouble(sentence, ErrorCode.BROKER_ID_NOT_REGISTERED)


def _producers(client: Client, leaders: Mapping[TopicPart, Address]) -> list[Row]:
    by_broker = defaultdict[Address, list[TopicPart]](list)
    for place, address in leaders.items():
        by_broker[address].append(place)

    def ask(address: Address, places: Sequence[TopicPart]) -> list[Row]:
        topics = defaultdict[str, list[int]](list)
        for topic, partition in places:
            topics[topic].append(partition)
        message = describe_producers.DescribeProducersRequest(
            [describe_producers.DescribeProducersRequestTopic(*each) for each in topics.items()]
        )
        answer = asked_at(client, address, "the producers", describe_producers, message, PRODUCERS_VERSION)
        return [
            row
            for topic in answer.topics
            for entry in topic.partitions
            for row in _producer_rows(topic.name, entry)
        ]

    rows: list[Row] = []
    for address, places in by_broker.items():
        for at in range(0, len(places), PLACES_AT_ONCE):
            rows += patiently(partial(ask, address, places[at : at + PLACES_AT_ONCE]))
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["producer_id"]))


def _producer_rows(topic: str, entry: describe_producers.DescribeProducersResponsePartition) -> list[Row]:
    place = topic, entry.partition_index
    if entry.error_code != ErrorCode.NONE:
        raise failure(of_partition(place), entry.error_code, entry.error_message)
    return [
        {
            "topic": topic,
            "partition": entry.partition_index,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "latest_coordinator_epoch": _known(each.coordinator_epoch),
            "last_sequence": _known(each.last_sequence),
            "last_timestamp": _time(each.last_timestamp),
            "current_transaction_start_offset": _known(each.current_txn_start_offset),
        }
        for each in entry.active_producers
    ]


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _time(time_ms: int) -> datetime | None:
    return None if time_ms < 0 else datetime.fromtimestamp(time_ms / 1000, UTC)


def find_hanging(
    client: Client,
    now_ms: int,
    *,
    older_ms: int,
    topic: str | None = None,
    partition: int | None = None,
    broker_id: int | None = None,
    among: Collection[str] | None = None,
) -> list[Row]:
    """The transactions that hang, in one topic or in all, whose last record is older than `older_ms`.

    `broker_id`: only the partitions that this broker leads. `among`: only these topics, which the login may READ.
    Partitions are asked before coordinators and once more after them, so a transaction that begins or ends meanwhile is
    not taken for one that hangs.
    """
    _check_served(client, {describe_producers: PRODUCERS_VERSION, list_transactions: 0})
    names = topic_names(client) if topic is None else [topic]
    leaders = _leaders(client, [name for name in names if among is None or name in among], partition)
    if broker_id is not None:
        address = _address_of(client, broker_id)
        leaders = {place: leader for place, leader in leaders.items() if leader == address}
    rows = _producers(client, leaders)
    latest = datetime.fromtimestamp((now_ms - older_ms) / 1000, UTC)
    candidates = [
        row
        for row in rows
        if row["current_transaction_start_offset"] is not None and row["last_timestamp"] < latest
    ]
    if not candidates:
        return []
    producer_ids = sorted({row["producer_id"] for row in candidates})
    ids = {
        row["producer_id"]: row["transactional_id"]
        for row in list_all_transactions(client, producer_ids=producer_ids)
    }
    described = describe_transactions_of(client, sorted(set(ids.values())), now_ms)
    unknown = [
        row for row in candidates if not _is_known(row, described.get(ids.get(row["producer_id"], "")))
    ]
    places = {(row["topic"], row["partition"]) for row in unknown}
    again = _producers(client, {place: leaders[place] for place in places})
    still_open = {_identity(row) for row in again}
    return [_hanging_row(row, now_ms) for row in unknown if _identity(row) in still_open]


def _identity(row: Row) -> tuple[str, int, int, int | None]:
    """Of a transaction in a partition."""
    start = row["current_transaction_start_offset"]
    return row["topic"], row["partition"], row["producer_id"], start


def _is_known(row: Row, transaction: Row | None) -> bool:
    """Whether the transaction names the partition: then its coordinator ends it."""
    place = f"{row['topic']}-{row['partition']}"
    return transaction is not None and place in transaction["topic_partitions"]


def _hanging_row(row: Row, now_ms: int) -> Row:
    age_ms = now_ms - int(row["last_timestamp"].timestamp() * 1000)
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "producer_id": row["producer_id"],
        "producer_epoch": row["producer_epoch"],
        "coordinator_epoch": row["latest_coordinator_epoch"],
        "start_offset": row["current_transaction_start_offset"],
        "last_timestamp": row["last_timestamp"],
        "duration_min": age_ms // 60_000,
    }


def transaction_at(client: Client, topic: str, partition: int, start_offset: int) -> OpenTransaction:
    """The open transaction that begins at this offset. Raises KafkaTrouble if there is none."""
    _check_served(client, {describe_producers: PRODUCERS_VERSION, write_txn_markers: MARKERS_VERSION})
    for row in _producers(client, _leaders(client, [topic], partition)):
        if row["current_transaction_start_offset"] == start_offset:
            return OpenTransaction(
                topic=topic,
                partition=partition,
                producer_id=row["producer_id"],
                producer_epoch=row["producer_epoch"],
                coordinator_epoch=row["latest_coordinator_epoch"] or 0,
            )
    raise KafkaTrouble(
        f"{of_partition((topic, partition))} has no open transaction that begins at offset {start_offset}; "
        "`kafscale transactions describe-producers` shows those that it has",
        ErrorCode.INVALID_TXN_STATE,
    )


def abort_transaction(client: Client, transaction: OpenTransaction) -> None:
    """Writes the abort marker in one partition. Raises KafkaTrouble, also if a coordinator knows the transaction."""
    _check_served(client, {write_txn_markers: MARKERS_VERSION})
    place = transaction.topic, transaction.partition
    topic = write_txn_markers.WriteTxnMarkersRequestWritableMarkerTopic(place[0], [place[1]])
    marker = write_txn_markers.WriteTxnMarkersRequestWritableMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=transaction.coordinator_epoch,
    )
    message = write_txn_markers.WriteTxnMarkersRequest([marker])

    def ask() -> None:
        address = _leaders(client, [place[0]], place[1])[place]
        what = of_partition(place)
        answer = asked_at(client, address, what, write_txn_markers, message, MARKERS_VERSION)
        for result in answer.markers:
            for part in (part for topic in result.topics for part in topic.partitions):
                if part.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    raise KafkaTrouble(f"{what}: {_FENCED}", part.error_code)
                if part.error_code != ErrorCode.NONE:
                    raise failure(what, part.error_code)

    with changing():
        patiently(ask)


def terminate_transaction(client: Client, name: str, now_ms: int) -> None:
    """Fences the producer of the id, which aborts its transaction. Raises KafkaTrouble if none is under way.

    InitProducerId would create an id that does not exist, so the id is described first.
    """
    row = transaction_under_way(client, name, now_ms)
    message = init_producer_id.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=row["transaction_timeout_ms"]
    )

    def ask() -> None:
        ((_, address),) = _by_coordinator(client, [name])
        answer = asked_at(client, address, of_id(name), init_producer_id, message, INIT_VERSION)
        if answer.error_code != ErrorCode.NONE:
            raise failure(of_id(name), answer.error_code)

    with changing():
        patiently(ask, patience_s=ANSWER_TIMEOUT_S)


def transaction_under_way(client: Client, name: str, now_ms: int) -> Row:
    """The row of `describe_transaction`. Raises KafkaTrouble if no transaction of the id is under way."""
    row = describe_transaction(client, name, now_ms)
    if row["transaction_state"] != ONGOING:
        raise KafkaTrouble(
            f"{of_id(name)} has no transaction under way; its state is {row['transaction_state']}",
            ErrorCode.INVALID_TXN_STATE,
        )
    return row


def _check_served(client: Client, wanted: Mapping[ModuleType, int]) -> None:
    """Raises KafkaTrouble if the cluster does not serve these versions. Kafka closes the connection for others."""
    message = api_versions.ApiVersionsRequest()
    answer = asked(client, "the versions", api_versions, message, API_VERSIONS_VERSION)
    served = {each.api_key: each for each in answer.api_keys}
    for api, version in wanted.items():
        offer = served.get(api.API_KEY)
        if offer is None or offer.max_version < 0:
            raise KafkaTrouble(OFF, ErrorCode.UNSUPPORTED_VERSION)
        if not offer.min_version <= version <= offer.max_version:
            raise KafkaTrouble(
                f"this cluster has {api.NAME} in versions {offer.min_version} to {offer.max_version}, "
                f"and this needs version {version}",
                ErrorCode.UNSUPPORTED_VERSION,
            )
