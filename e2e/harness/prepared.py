"""What must be there before a request that a healthy cluster answers well (`api_requests.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_heartbeat,
    create_topics,
    find_coordinator,
    init_producer_id,
    join_group,
    list_transactions,
    metadata,
    offset_commit,
    sync_group,
)

from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.services import until

NO_ID = UUID(int=0)
COORDINATOR_S = 30.0
TRANSACTION = 1  # the type of a coordinator
TRANSACTION_MS = 600_000  # longer than any test that asks within it
MEMBER_MS_MIN = 6_000  # who is asked about must still be there then


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What requests speak of. `dry`: calls that change topics only try to. `session_ms`: of who joins a group. The
    group's name is the transactional id too."""

    topic: str
    topic_id: UUID = NO_ID
    group: str
    member_id: str = ""
    generation: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    dry: bool = False
    session_ms: int = 60_000


Prepare = Callable[[Raw, World], World]
"""Makes what a request needs, under the names of the world given; the world as it is then."""


def nothing(_: Raw, world: World) -> World:
    return world


def topic(raw: Raw, world: World) -> World:
    """A topic of one partition, which the broker that is asked knows.

    A broker of Kafka learns of a topic a moment after the controller has created it.
    """
    wanted = create_topics.CreateTopicsRequestTopic(name=world.topic, num_partitions=1, replication_factor=1)
    (made,) = ask(raw, create_topics, 7, create_topics.CreateTopicsRequest(topics=[wanted])).topics
    assert made.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), made
    created = UUID(bytes=bytes(made.topic_id))
    known = NO_ID

    def is_known() -> bool:
        nonlocal known
        known = _topic_id(raw, world.topic)
        return known == created if made.error_code == ErrorCode.NONE else known != NO_ID

    until(f"{world.topic} is in the metadata", is_known)
    return replace(world, topic_id=known)


def _topic_id(raw: Raw, name: str) -> UUID:
    """As the broker knows it; `NO_ID` without such a topic."""
    named = metadata.MetadataRequestTopic(name=name)
    (found,) = ask(raw, metadata, 12, metadata.MetadataRequest(topics=[named])).topics
    return UUID(bytes=bytes(found.topic_id))


def member(raw: Raw, world: World) -> World:
    """A stable group of one member."""
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"m")
    joining = join_group.JoinGroupRequest(
        group_id=world.group,
        session_timeout_ms=max(world.session_ms, MEMBER_MS_MIN),
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = ask(raw, join_group, 3, joining)
    assert joined.error_code == ErrorCode.NONE
    mine = sync_group.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
    syncing = sync_group.SyncGroupRequest(
        group_id=world.group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[mine],
    )
    assert ask(raw, sync_group, 3, syncing).error_code == ErrorCode.NONE
    return replace(world, member_id=joined.member_id, generation=joined.generation_id)


def offsets(raw: Raw, world: World) -> World:
    """A topic and a group without members that has committed there. It asks again as clients do."""
    world = topic(raw, world)
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    on = offset_commit.OffsetCommitRequestTopic(name=world.topic, partitions=[partition])
    committing = offset_commit.OffsetCommitRequest(group_id=world.group, topics=[on])

    def has_committed() -> bool:
        (answered,) = ask(raw, offset_commit, 7, committing).topics
        (error,) = (ErrorCode(each.error_code) for each in answered.partitions)
        assert error is ErrorCode.NONE or error.retriable, error
        return error is ErrorCode.NONE

    until(f"{world.group} has committed", has_committed)
    return world


def consumer_member(raw: Raw, world: World) -> World:
    """A group of the new protocol (KIP-848) with a member."""
    beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=world.group,
        member_id=str(UUID(int=1)),
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[world.topic],
        topic_partitions=[],
    )
    assert ask(raw, consumer_group_heartbeat, 1, beat).error_code == ErrorCode.NONE
    return world


def coordinated_transaction(raw: Raw, world: World) -> World:
    """A coordinator for the transactional id, which Kafka may have to create first."""
    schema = find_coordinator
    wanted = schema.FindCoordinatorRequest(key=world.group, key_type=TRANSACTION)
    until(
        "transactions have a coordinator",
        lambda: ask(raw, schema, 3, wanted).error_code == ErrorCode.NONE,
        COORDINATOR_S,
    )
    return world


def transaction(raw: Raw, world: World) -> World:
    """A topic, and a producer of the transactional id. Apache Kafka aborts what its predecessor had under way."""
    world = topic(raw, coordinated_transaction(raw, world))
    wanted = init_producer_id.InitProducerIdRequest(
        transactional_id=world.group, transaction_timeout_ms=TRANSACTION_MS, producer_id=-1, producer_epoch=-1
    )
    said: init_producer_id.InitProducerIdResponse | None = None

    def has_producer() -> bool:
        nonlocal said
        said = ask(raw, init_producer_id, 4, wanted)
        error = ErrorCode(said.error_code)
        assert error is ErrorCode.NONE or error.retriable, error
        return error is ErrorCode.NONE

    until(f"{world.group} has a producer", has_producer)
    assert said is not None
    return replace(world, producer_id=said.producer_id, producer_epoch=said.producer_epoch)


def open_transaction(raw: Raw, world: World) -> World:
    """With the topic's partition in it."""
    world = transaction(raw, world)
    schema = add_partitions_to_txn
    adding = schema.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=world.group,
        v3_and_below_producer_id=world.producer_id,
        v3_and_below_producer_epoch=world.producer_epoch,
        v3_and_below_topics=[schema.AddPartitionsToTxnRequestTopic(name=world.topic, partitions=[0])],
    )

    def is_added() -> bool:
        (on,) = ask(raw, schema, 3, adding).results_by_topic_v3_and_below
        (error,) = (ErrorCode(each.partition_error_code) for each in on.results_by_partition)
        assert error is ErrorCode.NONE or error.retriable, error
        return error is ErrorCode.NONE

    until(f"{world.group} has a transaction", is_added)
    return world


def transaction_with_group(raw: Raw, world: World) -> World:
    """With the group in it."""
    world = transaction(raw, world)
    adding = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=world.group,
        producer_id=world.producer_id,
        producer_epoch=world.producer_epoch,
        group_id=world.group,
    )

    def is_added() -> bool:
        error = ErrorCode(ask(raw, add_offsets_to_txn, 3, adding).error_code)
        assert error is ErrorCode.NONE or error.retriable, error
        return error is ErrorCode.NONE

    until(f"{world.group} is in its transaction", is_added)
    return world


def no_transaction_closing(raw: Raw, world: World) -> World:
    """What others have ended is over: its markers are written, and its groups have the offsets."""
    wanted = list_transactions.ListTransactionsRequest(state_filters=["PrepareCommit", "PrepareAbort"])

    def is_over() -> bool:
        said = ask(raw, list_transactions, 0, wanted)
        return said.error_code == 0 and not said.transaction_states

    until("every transaction that was ended is over", is_over, COORDINATOR_S)
    return world
