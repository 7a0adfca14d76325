"""Produce through the front door: what is forwarded, split, joined and refused."""

import pytest
from door_harness import Cluster, settled
from kafscale.frontdoor.api import Backend
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.storage.topics import INTERNAL_TOPICS
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import produce

ONE, TWO = 1, 2


def two_owners(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 4)
    cluster.serve(Backend.PRODUCE, ONE, TWO)
    for partition in range(4):
        cluster.own(topic, partition, ONE if partition < 2 else TWO)


async def test_a_request_for_one_owner_is_forwarded_byte_by_byte_and_so_is_its_answer(
    cluster: Cluster,
) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a" * 100), ("t", 1, b"b"))
    (sent,) = cluster.producer(ONE).sent
    assert sent.buffers[0].obj is not None  # type: ignore[union-attr]
    assert len(sent.buffers) == 1
    assert sent.produced == [("t", 0, b"a" * 100), ("t", 1, b"b")]
    assert (sent.meta.listener, sent.meta.peer, sent.meta.client_id) == ("PLAINTEXT", "127.0.0.1:5", "test")
    assert 5_000 < sent.meta.age_budget_ms <= 6_000, "the service answers first"
    sent.append(offset=42)
    await settled()
    assert client.produced() == [("t", 0, 0, 42), ("t", 1, 0, 42)]
    assert cluster.producer(TWO).sent == []


async def test_a_request_over_two_owners_is_split_and_joined_in_its_own_order(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 3, b"d"), ("t", 0, b"a"), ("t", 2, b"c"))
    (one,), (two,) = cluster.producer(ONE).sent, cluster.producer(TWO).sent
    assert one.produced == [("t", 0, b"a")]
    assert two.produced == [("t", 3, b"d"), ("t", 2, b"c")]
    two.append(0, 10, offset=5)
    await settled()
    assert client.answers == []
    one.append(offset=6)
    await settled()
    assert client.produced() == [("t", 3, 0, 5), ("t", 0, 0, 6), ("t", 2, 10, -1)]


async def test_what_is_said_of_single_records_survives_the_joining(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"), ("t", 2, b"c"))
    (one,), (two,) = cluster.producer(ONE).sent, cluster.producer(TWO).sent
    one.append(offset=7)
    faulty = produce.ProduceResponsePartition(
        index=2,
        error_code=87,
        base_offset=-1,
        record_errors=[produce.ProduceResponseBatchIndexAndErrorMessage(4, "no key")],
        error_message="1 of 5",
    )
    topic = produce.ProduceResponseTopic(name="t", partition_responses=[faulty])
    two.reply(*produce.encode_response(produce.ProduceResponse(responses=[topic]), 9))
    await settled()
    answer = produce.decode_response(client.answers[0].body, 9)
    (good, bad) = answer.responses[0].partition_responses
    assert (good.base_offset, good.record_errors, good.error_message) == (7, [], None)
    assert [(each.batch_index, each.batch_index_error_message) for each in bad.record_errors] == [
        (4, "no key")
    ]
    assert bad.error_message == "1 of 5"


async def test_records_are_not_copied_on_the_way_to_several_owners(cluster: Cluster) -> None:
    two_owners(cluster)
    records = bytes(200_000)
    cluster.client().produce(("t", 0, records), ("t", 2, b"c"))
    (one,) = cluster.producer(ONE).sent
    (large,) = [buffer for buffer in one.buffers if len(buffer) == len(records)]
    assert isinstance(large, memoryview)
    assert isinstance(large.obj, bytearray), "a slice of the receive buffer"


async def test_answers_of_one_connection_stand_in_request_order_however_they_come(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    client.produce(("t", 2, b"c"))
    cluster.producer(TWO).sent[0].append(offset=2)
    await settled()
    assert client.answers == []
    cluster.producer(ONE).sent[0].append(offset=1)
    await settled()
    assert [client.produced(0), client.produced(1)] == [[("t", 0, 0, 1)], [("t", 2, 0, 2)]]
    assert client.transport.writes == 1


async def test_an_unknown_topic_is_looked_up_once_and_then_refused_alone(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"), ("nope", 0, b"x"), ("t", 9, b"y"), ("t", -1, b"z"))
    await settled()
    assert cluster.topics.reads == 1
    cluster.producer(ONE).sent[0].append(offset=1)
    await settled()
    assert client.produced() == [("t", 0, 0, 1), ("t", 9, 3, -1), ("t", -1, 3, -1), ("nope", 0, 3, -1)]
    client.produce(("nope", 0, b"x"))
    await settled()
    assert client.produced(1) == [("nope", 0, 3, -1)]
    assert cluster.topics.reads == 1, "a wrong name does not read etcd each time"


@pytest.mark.parametrize("exists", [False, True], ids=["absent", "from an earlier version"])
@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
async def test_no_client_writes_to_a_topic_of_kafkas_own_state(
    cluster: Cluster, name: str, exists: bool
) -> None:
    two_owners(cluster)
    if exists:
        cluster.own(cluster.topics.add(name, 2, 1), 0, ONE)
    client = cluster.client()
    client.produce((name, 0, b"x"), ("t", 0, b"a"))
    (sent,) = cluster.producer(ONE).sent
    assert sent.produced == [("t", 0, b"a")]
    sent.append(offset=1)
    await settled()
    assert client.produced() == [(name, 0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1), ("t", 0, 0, 1)]


async def test_an_unknown_topic_id_has_its_own_error(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("", 0, b"a"), version=13, number=99)
    await settled()
    assert client.produced() == [("", 0, 100, -1)]
    client.produce(("", 0, b"a"), version=13, number=1)
    cluster.producer(ONE).sent[0].append(offset=3)
    await settled()
    assert client.produced(1) == [("", 0, 0, 3)]


async def test_a_topic_that_the_view_does_not_have_yet_is_found_and_nothing_overtakes_it(
    cluster: Cluster,
) -> None:
    two_owners(cluster)
    cluster.topics.add("new", 2, 1, hidden=True)
    client = cluster.client()
    client.produce(("new", 0, b"first"))
    client.produce(("t", 0, b"second"))
    cluster.topics.topics["new"] = cluster.topics.hidden["new"]
    client.produce(("new", 0, b"third"))
    await settled()
    sent = [one.produced[0][2] for stream in cluster.streams.values() for one in stream.sent]
    assert sorted(sent) == [b"first", b"second", b"third"]
    assert sent.index(b"first") < sent.index(b"third")


async def test_when_etcd_cannot_say_a_topic_is_not_called_unknown(cluster: Cluster) -> None:
    cluster.topics.fails = True
    client = cluster.client()
    client.produce(("nope", 0, b"x"))
    await settled()
    assert client.produced() == [("nope", 0, 5, -1)]


async def test_a_topic_that_is_being_deleted_is_unknown(cluster: Cluster) -> None:
    two_owners(cluster)
    cluster.delete("t")
    client = cluster.client()
    client.produce(("t", 0, b"x"))
    await settled()
    assert client.produced() == [("t", 0, 3, -1)]


async def test_of_a_partition_named_twice_the_last_entry_counts_and_is_answered_once(
    cluster: Cluster,
) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"first"), ("t", 1, b"other"), ("t", 0, b"last"))
    (sent,) = cluster.producer(ONE).sent
    assert sent.produced == [("t", 0, b"last"), ("t", 1, b"other")]
    sent.append(offset=1)
    await settled()
    assert client.produced() == [("t", 0, 0, 1), ("t", 1, 0, 1)]


async def test_acks_that_do_not_exist_are_refused_here(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"), ("t", 2, b"b"), acks=2)
    await settled()
    assert client.produced() == [("t", 0, 21, -1), ("t", 2, 21, -1)]
    assert cluster.streams == {}


async def test_acks_0_is_sent_and_never_answered(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"), acks=0)
    client.produce(("t", 1, b"b"))
    quiet, loud = cluster.producer(ONE).sent
    loud.append(offset=1)
    await settled()
    assert client.produced() == [("t", 1, 0, 1)]
    quiet.reply(status=ReplyStatus.NO_REPLY)
    await settled()
    assert len(client.answers) == 1
    assert not client.hung_up
    assert client.connection.exchanges == {}


async def test_acks_0_that_failed_ends_the_connection_as_in_kafka(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"), acks=0)
    cluster.producer(ONE).sent[0].append(10)
    await settled()
    assert client.hung_up
    assert client.answers == []


async def test_acks_0_without_partitions_is_just_silence(cluster: Cluster) -> None:
    client = cluster.client()
    client.produce(acks=0, version=3)
    await settled()
    assert not client.hung_up
    assert client.connection.exchanges == {}
    client.produce(version=3)
    await settled()
    assert client.produced() == []


async def test_a_client_that_leaves_cancels_everything_it_had_open(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"), ("t", 2, b"c"))
    client.produce(("t", 1, b"b"))
    cluster.producer(ONE).sent[1].refuse()
    await settled()
    client.leave()
    await settled()
    assert cluster.producer(ONE).sent[0].cancelled
    assert cluster.producer(TWO).sent[0].cancelled
    assert cluster.door.sender.held_parts == 0
    cluster.own(cluster.topics.topics["t"], 1, TWO)
    await settled()
    assert len(cluster.producer(TWO).sent) == 1


async def test_message_sets_of_old_versions_go_to_their_owners_unread(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    for version in (0, 1, 2):
        client.produce(("t", 0, b"old"), ("t", 2, b"set"), version=version)
    for owner, partition, records in ((ONE, 0, b"old"), (TWO, 2, b"set")):
        for version, sent in enumerate(cluster.producer(owner).sent):
            assert (sent.meta.api_version, sent.produced) == (version, [("t", partition, records)])
            sent.append(offset=version)
    await settled()
    for number in range(3):
        assert client.produced(number) == [("t", 0, 0, number), ("t", 2, 0, number)]


async def test_bytes_that_are_no_produce_request_end_the_connection(cluster: Cluster) -> None:
    client = cluster.client()
    client.ask(0, 9, b"\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff\x0f")
    await settled()
    assert client.hung_up


async def test_the_requests_of_a_connection_share_one_stream_and_carry_its_number(cluster: Cluster) -> None:
    two_owners(cluster)
    one, other = cluster.client(), cluster.client()
    for client in (one, other, one):
        client.produce(("t", 0, b"a"))
    lanes = [sent.lane for sent in cluster.producer(ONE).sent]
    assert lanes[0] == lanes[2] != lanes[1]
    assert lanes == [sent.meta.connection_id for sent in cluster.producer(ONE).sent]


async def test_the_owner_is_asked_while_it_lives_then_its_heir_then_the_preferred(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 1)
    cluster.serve(Backend.PRODUCE, 1, 2, 3)
    key = (topic.topic_id, 0)
    cluster.owners.set(key, "2/gone", handoff_to="3")
    cluster.client().produce(("t", 0, b"a"))
    assert len(cluster.producer(3).sent) == 1
    cluster.owners.set(key, "1/a", handoff_to="3")
    cluster.client().produce(("t", 0, b"b"))
    assert len(cluster.producer(1).sent) == 1
    cluster.owners.set(key, "9/gone")
    cluster.client().produce(("t", 0, b"c"))
    assert sum(len(cluster.producer(node).sent) for node in (1, 2, 3)) == 3


async def test_the_revision_of_an_ack_is_what_later_reads_must_have_seen(cluster: Cluster) -> None:
    two_owners(cluster)
    cluster.serve(Backend.FETCH, 1)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    cluster.producer(ONE).sent[0].append(revision=77)
    await settled()
    client.fetch(("t", 0))
    assert cluster.fetcher(1).sent[0].meta.revision == 77


async def test_every_version_from_3_on_can_be_split(cluster: Cluster) -> None:
    two_owners(cluster)
    for version in range(3, 13):
        client = cluster.client()
        client.produce(("t", 0, b"a"), ("t", 2, b"b"), version=version)
        for node in (ONE, TWO):
            cluster.producer(node).sent[-1].append(offset=version)
        await settled()
        assert client.produced() == [("t", 0, 0, version), ("t", 2, 0, version)]


def test_the_offsets_of_a_failed_part_are_never_zero() -> None:
    from kafscale.frontdoor.produce_call import failed
    from kafscale.wire.errors import ErrorCode

    assert failed(1, ErrorCode.REQUEST_TIMED_OUT) == produce.ProduceResponsePartition(
        index=1, error_code=7, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1
    )


async def test_a_topic_whose_record_is_damaged_is_not_called_unknown(cluster: Cluster) -> None:
    """A producer gives up a topic that is unknown for long; this one is there and may be mended."""
    two_owners(cluster)
    cluster.topics.damaged.add("bad")
    client = cluster.client()
    client.produce(("bad", 0, b"x"), ("t", 0, b"a"))
    await settled()
    cluster.producer(ONE).sent[0].append(offset=1)
    await settled()
    assert sorted(client.produced()) == [("bad", 0, 56, -1), ("t", 0, 0, 1)]
