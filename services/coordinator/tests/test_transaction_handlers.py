"""The handlers of transactional ids: the answers of each version, bad input, and what stays while they are off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest
import pytest_asyncio
from kafscale.coordinator import handlers, server
from kafscale.coordinator.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from kafscale.coordinator.transactions.model import Rules
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.apis import exported
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_of
from kafscale.testkit.acls import ALICE, VARIANTS, allowing, variant
from kafscale.testkit.inbound import inbound
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import add_offsets_to_txn as offsets_schema
from kafscale.wire.schema import add_partitions_to_txn as partitions_schema
from kafscale.wire.schema import describe_transactions as describe_schema
from kafscale.wire.schema import end_txn as end_schema
from kafscale.wire.schema import init_producer_id as init_schema
from kafscale.wire.schema import list_transactions as list_schema

from services.coordinator.tests.shell_harness import OFF, SETTINGS, Coordinator, make_topic, running
from services.coordinator.tests.transaction_harness import (
    NAME,
    TIMEOUT_MS,
    Owners,
    add_owner,
    ids,
    record,
    take_calls,
    until_record,
)

LATEST_INIT = 5


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> Owners:
    return take_calls(monkeypatch)


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace, owners: Owners) -> AsyncIterator[Coordinator]:
    await add_owner(etcd, keyspace)
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


async def init(one: Coordinator, version: int = LATEST_INIT, **fields: Any) -> tuple[int, int, int]:
    """The error, the producer id and the epoch."""
    request = init_schema.InitProducerIdRequest(
        **{"transactional_id": NAME, "transaction_timeout_ms": TIMEOUT_MS, **fields}
    )
    answer = await one.ask(init_producer_id, init_schema, request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def add(
    one: Coordinator,
    producer_id: int,
    epoch: int = 0,
    *,
    version: int = 3,
    topics: dict[str, list[int]] | None = None,
    name: str = NAME,
    verify: bool = False,
    aged: bool = False,
    principal: str | None = None,
) -> dict[tuple[str, int], int]:
    """The errors of the partitions."""
    asked = [
        partitions_schema.AddPartitionsToTxnRequestTopic(name=topic, partitions=partitions)
        for topic, partitions in ({"t": [0]} if topics is None else topics).items()
    ]
    if version >= add_partitions_to_txn.SEVERAL_FROM:
        transaction = partitions_schema.AddPartitionsToTxnRequestTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify,
            topics=asked,
        )
        request = partitions_schema.AddPartitionsToTxnRequest(transactions=[transaction])
    else:
        request = partitions_schema.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=asked,
        )
    answer = await one.ask(
        add_partitions_to_txn, partitions_schema, request, version, aged=aged, principal=principal
    )
    results = answer.results_by_topic_v3_and_below
    for each in answer.results_by_transaction:
        assert each.transactional_id == name
        results = each.topic_results
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in results
        for partition in topic.results_by_partition
    }


async def add_group(
    one: Coordinator, producer_id: int, epoch: int = 0, *, version: int = 4, aged: bool = False, **fields: Any
) -> int:
    request = offsets_schema.AddOffsetsToTxnRequest(
        **{
            "transactional_id": NAME,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "group_id": "g",
            **fields,
        }
    )
    answer = await one.ask(add_offsets_to_txn, offsets_schema, request, version, aged=aged)
    error: int = answer.error_code
    return error


async def end(
    one: Coordinator,
    producer_id: int,
    epoch: int = 0,
    *,
    version: int = 4,
    commit: bool = True,
    aged: bool = False,
    name: str = NAME,
) -> tuple[int, int, int]:
    """The error, the producer id and the epoch."""
    request = end_schema.EndTxnRequest(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )
    answer = await one.ask(end_txn, end_schema, request, version, aged=aged)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def test_init_raises_the_epoch_of_an_id_and_gives_others_a_new_producer_id(one: Coordinator) -> None:
    error, producer_id, epoch = await init(one)
    assert (error, epoch) == (ErrorCode.NONE, 0)
    assert await init(one, 0) == (ErrorCode.NONE, producer_id, 1)
    assert await init(one, producer_id=producer_id, producer_epoch=1) == (ErrorCode.NONE, producer_id, 2)
    assert (await init(one, transactional_id="other"))[1] != producer_id
    assert (await init(one, transactional_id=None))[2] == 0


async def test_before_version_4_a_fenced_producer_hears_of_its_epoch(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    await init(one)
    stale = {"producer_id": producer_id, "producer_epoch": 0}
    assert (await init(one, 3, **stale))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await init(one, 4, **stale))[0] == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "ä" * 513}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
async def test_bad_input_of_init(one: Coordinator, wrong: dict[str, Any], error: ErrorCode) -> None:
    assert await init(one, **wrong) == (error, -1, -1)
    assert (await one.etcd.prefix(one.keys.transactions_prefix())).kvs == ()


async def test_partitions_are_added_and_a_transaction_is_committed(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    for version in range(4):
        assert await add(one, producer_id, version=version, topics={"t": [version, 7]}) == {
            ("t", version): 0,
            ("t", 7): 0,
        }
    state = await record(one)
    assert state is not None
    assert state.current is not None
    assert {partition for _, partition in state.current.partitions} == {0, 1, 2, 3, 7}
    assert await end(one, producer_id) == (ErrorCode.NONE, -1, -1)


async def test_end_of_version_5_answers_the_next_epoch(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    assert set((await add(one, producer_id, version=5)).values()) == {0}
    assert await end(one, producer_id, version=5) == (ErrorCode.NONE, producer_id, 1)
    assert await end(one, producer_id, version=5) == (ErrorCode.NONE, producer_id, 1), "the repeat"
    assert (await end(one, producer_id, version=5, commit=False))[0] == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 3, 4, 5])
async def test_a_partition_that_does_not_exist_keeps_the_others_out(one: Coordinator, version: int) -> None:
    _, producer_id, _ = await init(one)
    topics = {"t": [0, 500], "unknown": [0]}
    assert await add(one, producer_id, version=version, topics=topics) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 500): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    state = await record(one)
    assert state is not None
    assert state.current is None


async def test_brokers_may_verify_and_add_for_several_ids(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    _, other_id, _ = await init(one, transactional_id="other")
    asked = [
        partitions_schema.AddPartitionsToTxnRequestTransaction(
            transactional_id=name,
            producer_id=each,
            producer_epoch=0,
            verify_only=verify,
            topics=[partitions_schema.AddPartitionsToTxnRequestTopic(name="t", partitions=[0])],
        )
        for name, each, verify in ((NAME, producer_id, False), ("other", other_id, True))
    ]
    for version, abortable in ((4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)):
        request = partitions_schema.AddPartitionsToTxnRequest(transactions=asked)
        answer = await one.ask(add_partitions_to_txn, partitions_schema, request, version)
        found = {
            each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
            for each in answer.results_by_transaction
        }
        assert (answer.error_code, found) == (0, {NAME: 0, "other": abortable})
    assert (await add(one, producer_id, version=5, verify=True))["t", 0] == 0


async def test_errors_have_the_codes_of_the_version(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    await init(one)
    old, new = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED
    for version in range(6):
        wanted = old if version < 2 else new
        assert (await add(one, producer_id, 0, version=version))["t", 0] == wanted
        assert (await end(one, producer_id, 7, version=version))[0] == wanted
        if version <= 4:
            assert await add_group(one, producer_id, 0, version=version) == wanted
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (await add(one, producer_id + 500))["t", 0] == mapping
    assert (await end(one, producer_id + 500))[0] == mapping
    assert await add_group(one, producer_id, transactional_id="nobody") == mapping


async def test_a_transaction_with_too_many_participants_has_the_code_of_the_version(one: Coordinator) -> None:
    ids(one)._shared = replace(ids(one)._shared, rules=Rules(participants_max=2))
    _, producer_id, _ = await init(one)
    assert (await add(one, producer_id, topics={"t": [0, 1]}))["t", 0] == 0
    assert (await add(one, producer_id, topics={"t": [2]}))["t", 2] == ErrorCode.INVALID_TXN_STATE
    assert (await add(one, producer_id, version=5, topics={"t": [2]}))[
        "t", 2
    ] == ErrorCode.TRANSACTION_ABORTABLE
    assert await add_group(one, producer_id, version=3) == ErrorCode.INVALID_TXN_STATE
    assert await add_group(one, producer_id, version=4) == ErrorCode.TRANSACTION_ABORTABLE


async def test_bad_input_of_the_requests_of_a_transaction(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    for name in ("", "x" * 1_025):
        assert (await add(one, producer_id, name=name))["t", 0] == ErrorCode.INVALID_REQUEST
        assert (await end(one, producer_id, name=name))[0] == ErrorCode.INVALID_REQUEST
        assert await add_group(one, producer_id, transactional_id=name) == ErrorCode.INVALID_REQUEST
    assert await add_group(one, producer_id, group_id="g" * 1_025) == ErrorCode.INVALID_GROUP_ID
    assert await add(one, producer_id, topics={}) == {}
    assert await add(one, producer_id, topics={"t": []}) == {}
    state = await record(one)
    assert state is not None
    assert state.current is None


async def test_a_request_that_has_expired_takes_no_effect(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    assert (await add(one, producer_id, aged=True))["t", 0] == ErrorCode.NOT_COORDINATOR
    assert await add_group(one, producer_id, aged=True) == ErrorCode.NOT_COORDINATOR
    await add(one, producer_id)
    assert (await end(one, producer_id, aged=True))[0] == ErrorCode.NOT_COORDINATOR
    state = await record(one)
    assert state is not None
    assert state.current is not None
    assert state.current.groups == frozenset()


async def test_an_end_of_tv1_that_is_older_than_the_transaction_takes_no_effect(one: Coordinator) -> None:
    """Its client has begun the next transaction, so it has had an answer, and this is a copy."""
    _, producer_id, _ = await init(one)
    await add(one, producer_id)
    old = end_schema.EndTxnRequest(transactional_id=NAME, producer_id=producer_id, committed=True)
    body = b"".join(end_schema.encode_request(old, 4))
    young = inbound(body, end_schema.API_KEY, 4)
    young.arrived_ms = one.context.clock.real_ms() - 60_000
    answer = end_schema.decode_response(b"".join(await end_txn.handler(one.context)(young)), 4)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert (await end(one, producer_id))[0] == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 3])
async def test_partitions_are_added_with_the_right_to_write_the_topic(one: Coordinator, version: int) -> None:
    """A topic without the right keeps the others out, and whether it exists stays hidden."""
    await make_topic(one.etcd, one.keys, "x")
    _, producer_id, _ = await init(one)
    topics = {"t": [0], "x": [0]}
    for how, allowed in VARIANTS.items():
        decides = variant(how, "TOPIC x WRITE", "TOPIC t WRITE")
        one.context = replace(one.context, authorization=Authorization(decides, Metrics("coordinator")))
        found = await add(one, producer_id, version=version, topics=topics, principal=ALICE)
        if allowed:
            assert set(found.values()) == {0}, how
            continue
        assert found["x", 0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED, how
        assert found["t", 0] != ErrorCode.NONE, how
        absent = await add(one, producer_id, version=version, topics={"absent": [0]}, principal=ALICE)
        assert absent == {("absent", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    broker = await add(one, producer_id, version=4, topics=topics, principal="User:broker")
    assert set(broker.values()) == {0}, "the front door asks for CLUSTER_ACTION"


async def described(one: Coordinator, *names: str, principal: str | None = None) -> list[Any]:
    request = describe_schema.DescribeTransactionsRequest(transactional_ids=list(names))
    answer = await one.ask(describe_transactions, describe_schema, request, 0, principal=principal)
    found: list[Any] = answer.transaction_states
    return found


async def test_an_id_is_described_with_what_lacks_its_end(one: Coordinator, owners: Owners) -> None:
    owners.is_away = True
    _, producer_id, _ = await init(one)
    await add(one, producer_id, topics={"t": [1, 0]})
    await add_group(one, producer_id)
    (found,) = await described(one, NAME)
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (
        0,
        "Ongoing",
        TIMEOUT_MS,
    )
    assert (found.producer_id, found.producer_epoch) == (producer_id, 0)
    started_ms = found.transaction_start_time_ms
    assert abs(started_ms - one.clock.wall_ms()) < 60_000
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
    await end(one, producer_id)
    (found,) = await described(one, NAME)
    assert (found.transaction_state, found.transaction_start_time_ms) == ("PrepareCommit", started_ms)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
    owners.is_away = False
    await until_record(one, lambda state: state is not None and state.closing is None)
    (found,) = await described(one, NAME)
    assert (found.transaction_state, found.topics) == ("CompleteCommit", [])
    assert found.transaction_start_time_ms == started_ms
    await init(one)
    (found,) = await described(one, NAME)
    assert (found.transaction_state, found.transaction_start_time_ms) == ("Empty", -1)


async def test_an_id_is_described_with_its_next_transaction_and_what_still_lacks_the_end_of_the_last_one(
    one: Coordinator, owners: Owners
) -> None:
    """Else the last one would look as if it hung."""
    owners.is_away = True
    _, producer_id, _ = await init(one)
    await add(one, producer_id, topics={"t": [0, 1]})
    await end(one, producer_id, version=5)
    assert (await add(one, producer_id, 1, topics={"t": [1, 2]}))["t", 1] == 0
    (found,) = await described(one, NAME)
    assert (found.transaction_state, found.producer_epoch) == ("Ongoing", 1)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1, 2])]


async def test_ids_that_are_unknown_or_cannot_be_are_described_by_errors(one: Coordinator) -> None:
    found = await described(one, "nobody", "", "nobody")
    assert [(each.transactional_id, each.error_code) for each in found] == [
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]
    one.fresh = False
    assert (await described(one, "nobody"))[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_topics_that_the_client_may_not_describe_are_left_out(one: Coordinator) -> None:
    await make_topic(one.etcd, one.keys, "x")
    _, producer_id, _ = await init(one)
    await add(one, producer_id, topics={"t": [0], "x": [0]})
    one.context = replace(
        one.context, authorization=Authorization(allowing("TOPIC t DESCRIBE"), Metrics("coordinator"))
    )
    (found,) = await described(one, NAME, principal=ALICE)
    assert [topic.topic for topic in found.topics] == ["t"]


async def listed(one: Coordinator, version: int = 2, **fields: Any) -> dict[str, str]:
    """The states by id."""
    request = list_schema.ListTransactionsRequest(**fields)
    answer = await one.ask(list_transactions, list_schema, request, version)
    assert (answer.error_code, answer.unknown_state_filters) == (0, [])
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


async def test_ids_are_listed_by_state_producer_duration_and_pattern(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    await init(one, transactional_id="other")
    await add(one, producer_id)
    assert await listed(one, 0) == {NAME: "Ongoing", "other": "Empty"}
    assert await listed(one, 0, state_filters=["Ongoing"]) == {NAME: "Ongoing"}
    assert await listed(one, 0, state_filters=["Dead"]) == {}
    assert await listed(one, 0, producer_id_filters=[producer_id]) == {NAME: "Ongoing"}
    assert await listed(one, 2, transactional_id_pattern="o.*r") == {"other": "Empty"}
    assert await listed(one, 2, transactional_id_pattern="othe") == {}
    one.clock.later_ms = 1_000
    assert await listed(one, 1, duration_filter=900) == {NAME: "Ongoing"}
    assert await listed(one, 1, duration_filter=900_000) == {}
    ids(one)._unreadable[slot_of(NAME)].add("damaged")
    assert (await listed(one))["damaged"] == "Unknown"
    assert await listed(one, state_filters=["Empty"]) == {"other": "Empty"}


async def test_a_list_names_unknown_states_and_refuses_what_is_no_pattern(one: Coordinator) -> None:
    await init(one)
    request = list_schema.ListTransactionsRequest(state_filters=["Nonsense"])
    answer = await one.ask(list_transactions, list_schema, request, 2)
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Nonsense"], [])
    request = list_schema.ListTransactionsRequest(transactional_id_pattern="(")
    answer = await one.ask(list_transactions, list_schema, request, 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    one.fresh = False
    answer = await one.ask(list_transactions, list_schema, list_schema.ListTransactionsRequest(), 2)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    held = one.parts.slots.held(slot_of(NAME))
    assert held is not None
    held.loaded = False
    answer = await one.ask(list_transactions, list_schema, list_schema.ListTransactionsRequest(), 2)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_answers_of_tools_are_not_larger_than_allowed(
    one: Coordinator,
) -> None:
    await init(one)
    one.context = replace(one.context, settings=SETTINGS.model_copy(update={"answer_bytes_max": 10}))
    assert (await described(one, NAME))[0].error_code == ErrorCode.INVALID_REQUEST
    answer = await one.ask(list_transactions, list_schema, list_schema.ListTransactionsRequest(), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_the_apis_of_transactions_are_those_of_their_handlers() -> None:
    found = exported(handlers, "handler", FunctionType)
    assert set(found) >= server.OF_TRANSACTIONS


async def test_while_transactions_are_off_an_id_is_refused_and_no_record_is_read(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(etcd, keyspace, OFF) as off:
        assert await init(off) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
        assert (await init(off, transactional_id=None))[0] == ErrorCode.NONE
        assert off.parts.transactions is None
        assert len(off.parts._contents()) == 1
        assert off.metric("transactions_closing") == 0
        assert off.metric("transactions_decided_total", "commit", "tv2") == 0
