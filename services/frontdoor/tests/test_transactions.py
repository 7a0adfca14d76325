"""The APIs of transactions: served while these are on, to the coordinator of the id's slot or of the group's, once."""

from __future__ import annotations

from typing import Any

import pytest
from door_fakes import Sent
from door_harness import Cluster, settled
from group_requests import ONE, THREE, TWO, answered, ask, coordinators, joined, of_transaction, sent_to
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.apis import SERVED
from kafscale.frontdoor.handlers.add_offsets_to_txn import group_behind_producer
from kafscale.frontdoor.handlers.txn_offset_commit import group_behind_id
from kafscale.frontdoor.key_fields import transactional_id_of
from kafscale.runtime.stream.age import AGE_MS_MAX
from kafscale.testkit.acls import ALICE, allowing
from kafscale.wire.errors import WireError, error_codes
from kafscale.wire.schema import (
    add_partitions_to_txn,
    api_versions,
    describe_transactions,
    init_producer_id,
    list_transactions,
    module_of,
    produce,
)

ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 24, 25, 26, 28
APIS = (ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS)
ALL = [(key, version) for key in APIS for version in range(SERVED[key].versions[1] + 1)]
BATCHES_FROM = 4
NAMES = ("", "g", "größe", "n" * 300)
UNAVAILABLE, NOT_COORDINATOR, DENIED = 15, 16, 53


# ---- on or off


async def features(level: int, version: int, *, transactions: bool = True) -> tuple[Any, Any, int]:
    """Supported and finalized ones, and their epoch, as a client of this version of ApiVersions reads them."""
    async with Cluster.running(transactions=transactions, transaction_version=level) as cluster:
        client = cluster.client()
        request = api_versions.ApiVersionsRequest("probe", "1")
        client.ask(18, version, joined(api_versions.encode_request(request, version)))
        await settled()
        answer = api_versions.decode_response(client.answers[0].body, version)
    supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
    finalized = [
        (each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features
    ]
    return supported, finalized, answer.finalized_features_epoch


@pytest.mark.parametrize("level", [1, 2])
async def test_clients_see_the_level_of_transactions_as_a_finalized_feature(level: int) -> None:
    name = "transaction.version"
    assert await features(level, 4) == ([(name, 0, 2)], [(name, level, level)], 1)
    assert await features(level, 3) == ([], [(name, level, level)], 1), "older clients cannot read a 0"
    assert await features(level, 2) == ([], [], -1)


async def test_level_0_is_in_no_list_of_finalized_features() -> None:
    assert await features(0, 4) == ([("transaction.version", 0, 2)], [], 1)


@pytest.mark.parametrize("version", range(5))
async def test_without_transactions_there_is_no_feature(version: int) -> None:
    assert await features(2, version, transactions=False) == ([], [], -1)


@pytest.mark.parametrize("version", range(6))
async def test_without_transactions_an_id_gets_no_producer_and_no_coordinator_hears_of_it(
    version: int,
) -> None:
    async with Cluster.running(transactions=False) as cluster:
        coordinators(cluster, g1=1)
        client = cluster.client()
        ask(client, 22, version, init_producer_id.InitProducerIdRequest(transactional_id=ONE))
        await settled()
        answer = answered(client)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (DENIED, -1, -1)
        assert cluster.streams == {}


async def test_without_transactions_their_apis_reach_no_coordinator() -> None:
    async with Cluster.running(transactions=False) as cluster:
        coordinators(cluster, g1=1, g2=1)
        for key, version in ALL:
            ask(cluster.client(), key, version, of_transaction(key, version, ONE, TWO))
        await settled()
        assert cluster.streams == {}


# ---- where they go


@pytest.mark.parametrize("key", [ADD_OFFSETS, COMMIT_OFFSETS])
def test_the_group_is_read_off_a_request_about_its_offsets(key: int) -> None:
    read = group_behind_producer if key == ADD_OFFSETS else group_behind_id
    for version in range(SERVED[key].versions[1] + 1):
        schema = module_of(key)
        flexible = version >= schema.FLEXIBLE_FROM
        for group in NAMES:
            for transaction in NAMES:
                message = of_transaction(key, version, transaction, group)
                body = memoryview(joined(schema.encode_request(message, version)))
                assert read(body, flexible=flexible) == group
                assert transactional_id_of(body, flexible=flexible) == transaction
        cut = memoryview(joined(schema.encode_request(of_transaction(key, version, "tx", "group"), version)))
        for size in range(cut.obj.index(b"group") + 5):  # type: ignore[attr-defined]
            with pytest.raises(WireError):
                read(cut[:size], flexible=flexible)


@pytest.mark.parametrize("flexible", [False, True])
def test_an_id_or_a_group_that_is_null_is_none(flexible: bool) -> None:
    null, text = (b"\0", b"\2t") if flexible else (b"\xff\xff", b"\0\1t")
    with pytest.raises(WireError):
        transactional_id_of(memoryview(null), flexible=flexible)
    with pytest.raises(WireError):
        group_behind_id(memoryview(text + null), flexible=flexible)
    with pytest.raises(WireError):
        group_behind_producer(memoryview(text + bytes(10) + null), flexible=flexible)


@pytest.mark.parametrize(("key", "version"), ALL)
async def test_a_request_and_its_answer_pass_unread_by_the_owner_of_the_slot_while_they_are_young(
    cluster: Cluster, key: int, version: int
) -> None:
    coordinators(cluster, g1=1, g2=2)
    client = cluster.client()
    body = ask(client, key, version, of_transaction(key, version, ONE, TWO))
    to, other = (2, 1) if key == COMMIT_OFFSETS else (1, 2)
    (sent,) = sent_to(cluster, to)
    assert sent_to(cluster, other) == []
    assert sent.body == body
    assert AGE_MS_MAX - 1_000 < sent.meta.age_budget_ms <= AGE_MS_MAX
    sent.reply(b"whatever it says")
    await settled()
    assert client.answers[0].body == b"whatever it says"


@pytest.mark.parametrize("version", range(6))
async def test_a_producer_id_for_an_id_comes_from_the_coordinator_of_its_slot(
    cluster: Cluster, version: int
) -> None:
    coordinators(cluster, g1=1, g2=2)
    for name, to, other in ((ONE, 1, 2), (TWO, 2, 1)):
        before = len(sent_to(cluster, other))
        message = init_producer_id.InitProducerIdRequest(transactional_id=name)
        body = ask(cluster.client(), 22, version, message)
        assert sent_to(cluster, to)[-1].body == body
        assert len(sent_to(cluster, other)) == before


async def test_a_producer_id_without_an_id_needs_no_owner_of_a_slot(cluster: Cluster) -> None:
    cluster.serve(Backend.COORDINATOR, 1)
    ask(cluster.client(), 22, 5, init_producer_id.InitProducerIdRequest(transactional_id=None))
    assert len(sent_to(cluster, 1)) == 1


async def test_the_budget_is_what_is_left_of_the_age_limit_whatever_else_bounds_requests() -> None:
    """The coordinator computes the age from it."""
    async with Cluster.running(frontdoor_request_timeout_ms=1_000) as cluster:
        coordinators(cluster, g1=1)
        cluster.watch.stopped_ms = 2_000
        ask(cluster.client(), END, 4, of_transaction(END, 4, ONE, TWO))
        budget_ms = sent_to(cluster, 1)[0].meta.age_budget_ms
        assert AGE_MS_MAX - 2_500 < budget_ms <= AGE_MS_MAX - 2_000


# ---- what the front door answers itself


def codes_of(key: int, version: int, answer: Any) -> set[int]:
    """The codes in the answer, which names all that the request names."""
    if key == ADD_PARTITIONS and version < BATCHES_FROM:
        (topic,) = answer.results_by_topic_v3_and_below
        assert (topic.name, [each.partition_index for each in topic.results_by_partition]) == ("t", [3, 5])
    if key == COMMIT_OFFSETS:
        (topic,) = answer.topics
        assert (topic.name, [each.partition_index for each in topic.partitions]) == ("t", [3])
    return set(error_codes(answer))


@pytest.mark.parametrize(("key", "version"), [*ALL, *((22, version) for version in range(6))])
async def test_without_a_coordinator_clients_are_to_look_for_one(
    cluster: Cluster, key: int, version: int
) -> None:
    coordinators(cluster, g3=1)
    client = cluster.client()
    message: Any = init_producer_id.InitProducerIdRequest(transactional_id=ONE)
    ask(client, key, version, message if key == 22 else of_transaction(key, version, ONE, TWO))
    await settled()
    assert codes_of(key, version, answered(client)) == {UNAVAILABLE}
    assert cluster.streams == {}


@pytest.mark.parametrize(("key", "version"), [*ALL, *((22, version) for version in range(6))])
async def test_what_may_have_been_done_is_not_coordinator_and_is_not_sent_again(
    cluster: Cluster, key: int, version: int
) -> None:
    coordinators(cluster, g1=1, g2=1)
    client = cluster.client()
    message: Any = init_producer_id.InitProducerIdRequest(transactional_id=ONE)
    ask(client, key, version, message if key == 22 else of_transaction(key, version, ONE, TWO))
    (sent,) = sent_to(cluster, 1)
    sent.lose(sent=True)
    for name in (ONE, TWO):
        cluster.slots.set(name, "2/a")
    await settled()
    assert codes_of(key, version, answered(client)) == {NOT_COORDINATOR}
    assert (len(sent_to(cluster, 1)), len(sent_to(cluster, 2))) == (1, 0)


@pytest.mark.parametrize(("key", "version"), ALL)
@pytest.mark.parametrize(("stopped_ms", "passes"), [(AGE_MS_MAX - 1_000, True), (AGE_MS_MAX + 1, False)])
async def test_a_request_that_stood_unread_while_the_door_was_stopped_is_too_old_to_pass(
    cluster: Cluster, key: int, version: int, stopped_ms: int, passes: bool
) -> None:
    coordinators(cluster, g1=1, g2=1)
    cluster.watch.stopped_ms = stopped_ms
    client = cluster.client()
    ask(client, key, version, of_transaction(key, version, ONE, TWO))
    await settled()
    assert bool(sent_to(cluster, 1)) is passes
    if not passes:
        assert codes_of(key, version, answered(client)) == {UNAVAILABLE}


# ---- several ids in one request

schema = add_partitions_to_txn


def several(*names: str) -> schema.AddPartitionsToTxnRequest:
    """The nth id has n partitions."""
    return schema.AddPartitionsToTxnRequest(
        transactions=[
            schema.AddPartitionsToTxnRequestTransaction(
                transactional_id=name,
                producer_id=number,
                verify_only=True,
                topics=[schema.AddPartitionsToTxnRequestTopic(name=name, partitions=list(range(number)))],
            )
            for number, name in enumerate(names, 1)
        ]
    )


def answer_well(sent: Sent, version: int, throttle_time_ms: int = 0) -> None:
    asked = schema.decode_request(sent.body, version).transactions
    results = [
        schema.AddPartitionsToTxnResponseResult(
            transactional_id=one.transactional_id,
            topic_results=[
                schema.AddPartitionsToTxnResponseTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        schema.AddPartitionsToTxnResponsePartitionResult(partition_index=index)
                        for index in topic.partitions
                    ],
                )
                for topic in one.topics
            ],
        )
        for one in reversed(asked)
    ]
    response = schema.AddPartitionsToTxnResponse(
        throttle_time_ms=throttle_time_ms, results_by_transaction=results
    )
    sent.reply(*schema.encode_response(response, version))


def results(answer: schema.AddPartitionsToTxnResponse) -> list[tuple[str, list[int]]]:
    """Each id with the codes of its partitions."""
    assert answer.error_code == 0
    return [
        (
            one.transactional_id,
            [part.partition_error_code for topic in one.topic_results for part in topic.results_by_partition],
        )
        for one in answer.results_by_transaction
    ]


@pytest.mark.parametrize("version", [4, 5])
async def test_several_ids_are_cut_by_their_slots_and_joined_in_the_order_of_the_request(
    cluster: Cluster, version: int
) -> None:
    coordinators(cluster, g1=1, g2=2, g3=1)
    client = cluster.client()
    ask(client, ADD_PARTITIONS, version, several(ONE, TWO, THREE))
    (first,), (second,) = sent_to(cluster, 1), sent_to(cluster, 2)
    shares = [schema.decode_request(sent.body, version).transactions for sent in (first, second)]
    assert [[one.transactional_id for one in share] for share in shares] == [[ONE, THREE], [TWO]]
    assert all(one.verify_only for share in shares for one in share)
    answer_well(second, version, throttle_time_ms=3)
    answer_well(first, version, throttle_time_ms=9)
    await settled()
    answer = answered(client)
    assert results(answer) == [(ONE, [0]), (TWO, [0, 0]), (THREE, [0, 0, 0])]
    assert answer.throttle_time_ms == 9


@pytest.mark.parametrize(
    "failure", ["absent", "unsent", "lost", "unreadable", "other ids", "refused at the top"]
)
async def test_each_partition_of_an_id_has_the_error_if_its_coordinator_did_not_answer(
    cluster: Cluster, failure: str
) -> None:
    coordinators(cluster, **({"g1": 1} if failure == "absent" else {"g1": 1, "g2": 2}))
    client = cluster.client()
    ask(client, ADD_PARTITIONS, 5, several(ONE, TWO))
    answer_well(sent_to(cluster, 1)[0], 5)
    code = UNAVAILABLE if failure in ("absent", "unsent") else NOT_COORDINATOR
    for sent in sent_to(cluster, 2) if failure != "absent" else ():
        match failure:
            case "unsent" | "lost":
                sent.lose(sent=failure == "lost")
            case "unreadable":
                sent.reply(b"\xff" * 9)
            case "other ids":
                sent.reply(*schema.encode_response(schema.AddPartitionsToTxnResponse(), 5))
            case _:
                sent.reply(*schema.encode_response(schema.AddPartitionsToTxnResponse(error_code=31), 5))
    await settled()
    assert results(answered(client)) == [(ONE, [0]), (TWO, [code, code])]


async def test_an_id_that_a_request_names_twice_is_answered_once(cluster: Cluster) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, ADD_PARTITIONS, 5, several(ONE, TWO, ONE, TWO))
    answer_well(sent_to(cluster, 1)[0], 5)
    await settled()
    assert [(name, set(codes)) for name, codes in results(answered(client))] == [(ONE, {0}), (TWO, {15})]


# ---- tools


@pytest.mark.parametrize("rights", [(ONE, TWO), (TWO,)])
async def test_transactions_are_described_by_the_coordinators_of_their_ids(rights: tuple[str, ...]) -> None:
    schema = describe_transactions
    allowed = allowing(*(f"TRANSACTIONAL_ID {name} DESCRIBE" for name in rights))
    async with Cluster.running(allowed) as cluster:
        coordinators(cluster, g1=1, g2=2)
        client = cluster.client(ALICE)
        ask(client, 65, 0, schema.DescribeTransactionsRequest(transactional_ids=[ONE, THREE, TWO]))
        for sent in (*sent_to(cluster, 1), *sent_to(cluster, 2)):
            asked = schema.decode_request(sent.body, 0).transactional_ids
            found = [
                schema.DescribeTransactionsResponseTransactionState(
                    transactional_id=name, transaction_state="Ongoing"
                )
                for name in asked
            ]
            sent.reply(
                *schema.encode_response(schema.DescribeTransactionsResponse(transaction_states=found), 0)
            )
        await settled()
        states = answered(client).transaction_states
    codes = [(each.transactional_id, each.error_code, each.transaction_state) for each in states]
    first = (ONE, 0, "Ongoing") if ONE in rights else (ONE, DENIED, "")
    assert codes == [first, (THREE, DENIED, ""), (TWO, 0, "Ongoing")]


@pytest.mark.parametrize("version", range(3))
async def test_transactions_of_all_coordinators_are_listed_but_for_those_that_a_client_may_not_describe(
    version: int,
) -> None:
    schema = list_transactions
    async with Cluster.running(allowing(f"TRANSACTIONAL_ID {TWO} DESCRIBE")) as cluster:
        coordinators(cluster, g1=1, g2=2)
        client = cluster.client(ALICE)
        wanted = schema.ListTransactionsRequest(state_filters=["Ongoing", "Dreaming"])
        body = ask(client, 66, version, wanted)
        for node_id, name in ((1, ONE), (2, TWO)):
            (sent,) = sent_to(cluster, node_id)
            assert sent.body == body
            state = schema.ListTransactionsResponseTransactionState(
                transactional_id=name, producer_id=node_id, transaction_state="Ongoing"
            )
            said = schema.ListTransactionsResponse(
                unknown_state_filters=["Dreaming"], transaction_states=[state], throttle_time_ms=node_id
            )
            sent.reply(*schema.encode_response(said, version))
        await settled()
        answer = answered(client)
    assert [(each.transactional_id, each.producer_id) for each in answer.transaction_states] == [(TWO, 2)]
    assert (answer.error_code, answer.unknown_state_filters, answer.throttle_time_ms) == (0, ["Dreaming"], 2)


async def test_a_list_that_lacks_the_transactions_of_a_coordinator_is_none(cluster: Cluster) -> None:
    coordinators(cluster, g1=1, g2=2)
    client = cluster.client()
    ask(client, 66, 2, list_transactions.ListTransactionsRequest())
    said = list_transactions.ListTransactionsResponse()
    sent_to(cluster, 1)[0].reply(*list_transactions.encode_response(said, 2))
    sent_to(cluster, 2)[0].lose(sent=True)
    await settled()
    assert answered(client).error_code == UNAVAILABLE


# ---- Produce


async def test_each_owner_learns_the_id_of_a_producer_whose_partitions_are_apart(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 2)
    cluster.serve(Backend.PRODUCE, 1, 2)
    cluster.own(topic, 0, 1)
    cluster.own(topic, 1, 2)
    entries = [produce.ProduceRequestPartition(index=index, records=b"r") for index in (0, 1)]
    message = produce.ProduceRequest(
        transactional_id=ONE,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[produce.ProduceRequestTopic(name="t", partition_data=entries)],
    )
    ask(cluster.client(), 0, 12, message)
    await settled()
    shares = [cluster.producer(node_id).sent for node_id in (1, 2)]
    asked = [produce.decode_request(memoryview(one.body), 12) for share in shares for one in share]
    assert [one.transactional_id for one in asked] == [ONE, ONE]
    assert [one.topic_data[0].partition_data[0].index for one in asked] == [0, 1]
