"""Records whose owner changes, leaves or dies: what is held, sent again, given up, and what never is."""

import pytest
from door_harness import Cluster, settled, until
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.lanes import LaneKey
from kafscale.frontdoor.produce_lanes import Producer
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.wire.errors import ErrorCode

ONE, TWO = 1, 2


def two_owners(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 4)
    cluster.serve(Backend.PRODUCE, ONE, TWO)
    for partition in range(4):
        cluster.own(topic, partition, ONE if partition < 2 else TWO)


async def test_five_in_flight_keep_their_order_over_a_change_of_owner(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    for number in range(5):
        client.produce(("t", 0, b"%d" % number))
    old = list(cluster.producer(ONE).sent)
    assert [one.produced[0][2] for one in old] == [b"0", b"1", b"2", b"3", b"4"]
    old[0].append(offset=10)
    for one in reversed(old[1:]):
        one.refuse()
    await settled()
    assert cluster.producer(TWO).sent == []
    cluster.own(cluster.topics.topics["t"], 0, TWO)
    new = cluster.producer(TWO).sent
    assert [one.produced[0][2] for one in new] == [b"1", b"2", b"3", b"4"]
    assert {one.meta.lane_epoch for one in new} == {1}
    client.produce(("t", 0, b"5"))
    assert [one.meta.lane_epoch for one in new] == [1] * 5
    for offset, one in enumerate(new):
        one.append(offset=11 + offset)
    await settled()
    assert [client.produced(n) for n in range(6)] == [[("t", 0, 0, 10 + n)] for n in range(6)]


async def test_nothing_is_sent_again_while_an_earlier_one_is_still_out(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"0"))
    client.produce(("t", 0, b"1"))
    first, second = cluster.producer(ONE).sent
    second.refuse()
    await settled()
    cluster.own(cluster.topics.topics["t"], 0, TWO)
    assert cluster.producer(TWO).sent == []
    first.refuse()
    await until(lambda: len(cluster.producer(TWO).sent) == 2)
    assert [one.produced[0][2] for one in cluster.producer(TWO).sent] == [b"0", b"1"]


async def test_only_the_refused_partitions_go_again(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"), ("t", 1, b"b"))
    cluster.producer(ONE).sent[0].append(0, 6, offset=4, status=ReplyStatus.NOT_OWNER)
    await settled()
    assert client.answers == []
    cluster.own(cluster.topics.topics["t"], 1, TWO)
    (again,) = cluster.producer(TWO).sent
    assert again.produced == [("t", 1, b"b")]
    again.append(offset=9)
    await settled()
    assert client.produced() == [("t", 0, 0, 4), ("t", 1, 0, 9)]


async def test_without_any_change_a_refused_part_is_tried_again_and_then_given_up(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    stream = cluster.producer(ONE)

    def refuse_all() -> bool:
        for one in stream.sent:
            if not one.future.done():
                one.refuse()
        return bool(client.answers)

    await until(refuse_all)
    tried = len(stream.sent)
    assert 3 <= tried <= 8
    assert [one.meta.lane_epoch for one in stream.sent] == list(range(tried))
    assert client.produced() == [("t", 0, 5, -1)]


async def test_without_a_producer_records_wait_for_one(cluster: Cluster) -> None:
    cluster.topics.add("t", 1, 1)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    assert cluster.door.sender.held_parts == 1
    cluster.serve(Backend.PRODUCE, ONE)
    cluster.producer(ONE).sent[0].append(offset=0)
    await settled()
    assert client.produced() == [("t", 0, 0, 0)]


async def test_without_a_producer_for_long_records_are_refused_as_certainly_not_appended(
    cluster: Cluster,
) -> None:
    cluster.topics.add("t", 1, 1)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    await until(lambda: bool(client.answers))
    assert client.produced() == [("t", 0, 5, -1)]
    assert cluster.door.sender.held_parts == 0


async def test_what_a_lost_stream_may_have_carried_closes_the_connection_and_is_never_sent_again(
    cluster: Cluster,
) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    cluster.producer(ONE).sent[0].lose(sent=True)
    await settled()
    assert client.hung_up
    assert client.answers == []
    cluster.own(cluster.topics.topics["t"], 0, TWO)
    await settled()
    assert cluster.producer(TWO).sent == []
    assert len(cluster.producer(ONE).sent) == 1


async def test_what_was_never_sent_goes_to_the_next_owner(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    cluster.producer(ONE).sent[0].lose(sent=False)
    await settled()
    assert client.answers == []
    cluster.own(cluster.topics.topics["t"], 0, TWO)
    cluster.producer(TWO).sent[0].append(offset=1)
    await settled()
    assert client.produced() == [("t", 0, 0, 1)]


async def test_a_small_request_does_not_slip_past_a_large_one_that_found_the_queue_full(
    cluster: Cluster,
) -> None:
    two_owners(cluster)
    stream = cluster.producer(ONE)
    stream.fails = lambda size: size > 1000
    client = cluster.client()
    client.produce(("t", 0, b"L" * 2000))
    client.produce(("t", 0, b"s"))
    assert stream.sent == []
    await until(lambda: cluster.door.sender.resent_parts > 0)
    assert stream.sent == [], "also not when both are tried again"
    stream.fails = lambda size: False
    await until(lambda: len(stream.sent) == 2)
    assert [one.produced[0][2][:1] for one in stream.sent] == [b"L", b"s"]


async def test_a_service_that_died_in_the_middle_leaves_an_unknown_outcome(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"), ("t", 1, b"b"))
    cluster.producer(ONE).sent[0].reply(status=ReplyStatus.FAILED)
    await settled()
    assert client.hung_up
    assert client.answers == []


async def test_a_request_that_the_service_dropped_as_too_old_is_certainly_not_appended(
    cluster: Cluster,
) -> None:
    """And it is not sent again: what the client had pipelined behind it may be appended by now."""
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    client.produce(("t", 0, b"b"))
    old, young = cluster.producer(ONE).sent
    old.reply(status=ReplyStatus.EXPIRED)
    young.append(offset=3)
    await settled()
    assert not client.hung_up
    assert client.produced(0) == [("t", 0, ErrorCode.LEADER_NOT_AVAILABLE, -1)]
    assert client.produced(1) == [("t", 0, 0, 3)]
    assert len(cluster.producer(ONE).sent) == 2
    assert cluster.door.sender.held_parts == 0


async def test_a_leaving_service_refuses_and_its_successor_gets_it(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    cluster.producer(ONE).sent[0].reply(status=ReplyStatus.REFUSED)
    await settled()
    cluster.serve(Backend.PRODUCE, TWO)
    cluster.producer(TWO).sent[0].append(offset=1)
    await settled()
    assert client.produced() == [("t", 0, 0, 1)]


async def test_a_request_that_gets_no_answer_in_time_closes_the_connection_and_is_cancelled() -> None:
    async with Cluster.running(produce_timeout_min_ms=0) as cluster:
        two_owners(cluster)
        client = cluster.client()
        client.produce(("t", 0, b"a"), ("t", 2, b"c"), timeout_ms=1)
        cluster.producer(TWO).sent[0].append(offset=8)
        await until(lambda: client.hung_up)
        assert client.answers == []
        assert cluster.producer(ONE).sent[0].cancelled


async def test_a_deleted_topic_frees_what_its_lanes_hold(cluster: Cluster) -> None:
    two_owners(cluster)
    client = cluster.client()
    client.produce(("t", 0, b"a"))
    cluster.producer(ONE).sent[0].refuse()
    await settled()
    del cluster.topics.topics["t"]
    await until(lambda: bool(client.answers))
    assert client.produced() == [("t", 0, 3, -1)]


async def test_a_change_of_owner_is_looked_at_by_those_who_hold_something_of_that_lane(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash thousands of lanes change owner while thousands of connections hold something."""
    topic = cluster.topics.add("t", 1, 20)
    clients = [cluster.client() for _ in range(20)]
    for partition, client in enumerate(clients):
        client.produce(("t", partition, b"held"))
    sender = cluster.door.sender
    assert sender.held_parts == 20
    looked: list[int] = []
    pump = sender._pump

    def counted(producer: Producer, key: LaneKey | None = None) -> None:
        looked.append(producer.caller.connection_id)
        pump(producer, key)

    monkeypatch.setattr(sender, "_pump", counted)
    for partition in range(20):
        cluster.own(topic, partition, ONE)
    assert looked == [client.connection.caller.connection_id for client in clients]
    cluster.serve(Backend.PRODUCE, ONE)
    assert sorted(one.produced[0][1] for one in cluster.producer(ONE).sent) == list(range(20))
    assert sender._holders == {}


async def test_a_client_that_leaves_holds_no_lane(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 2)
    gone, other = cluster.client(), cluster.client()
    gone.produce(("t", 0, b"gone"), ("t", 1, b"gone"))
    other.produce(("t", 1, b"other"))
    gone.leave()
    cluster.serve(Backend.PRODUCE, ONE)
    cluster.own(topic, 0, ONE)
    cluster.own(topic, 1, ONE)
    await settled()
    assert [one.produced for one in cluster.producer(ONE).sent] == [[("t", 1, b"other")]]
    assert cluster.door.sender._holders == {}


async def test_a_held_part_whose_owner_comes_back_without_being_reachable_is_tried_again(
    cluster: Cluster,
) -> None:
    """The timer of the connection still runs after a look at one lane alone."""
    topic = cluster.topics.add("t", 1, 1)
    client = cluster.client()
    client.produce(("t", 0, b"held"))
    cluster.producer(ONE).fails = lambda _: True
    cluster.serve(Backend.PRODUCE, ONE)
    cluster.own(topic, 0, ONE)
    assert cluster.producer(ONE).sent == []
    cluster.producer(ONE).fails = lambda _: False
    await until(lambda: len(cluster.producer(ONE).sent) == 1)


async def test_a_service_that_takes_no_more_is_asked_once_for_all_lanes(cluster: Cluster) -> None:
    topic = cluster.topics.add("t", 1, 20)
    cluster.serve(Backend.PRODUCE, ONE)
    for partition in range(20):
        cluster.own(topic, partition, ONE)
    client = cluster.client()
    client.produce(("t", 0, b"out"))
    stream, asked = cluster.producer(ONE), 0

    def full(_size: int) -> bool:
        nonlocal asked
        asked += 1
        return True

    stream.fails = full
    for partition in range(20):
        client.produce(("t", partition, b"%d" % partition))
    assert cluster.door.sender.held_parts == asked == 20
    asked = 0
    cluster.serve(Backend.PRODUCE, ONE, TWO)
    assert 1 <= asked <= 2, "one refusal says it for all lanes of the connection"
    stream.fails = lambda _size: False
    stream.sent[0].append(offset=0)
    await until(lambda: len(stream.sent) == 21)
    assert sorted(int(one.produced[0][2]) for one in stream.sent[1:]) == list(range(20))
