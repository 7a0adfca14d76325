"""Fetch through the front door: forwarded whole, split over instances, joined, and where sessions go."""

import pytest
from door_fakes import Sent
from door_harness import NODES, Cluster, FakeClient, settled, split_over_two, until
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.handlers.fetch import max_wait_ms
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import fetch


def asked(sent: Sent) -> list[tuple[str, int]]:
    return [(topic.topic, entry.partition) for topic in sent.fetched.topics for entry in topic.partitions]


async def test_one_instance_gets_the_request_as_it_came(cluster: Cluster) -> None:
    cluster.serve(Backend.FETCH, 1)
    client = cluster.client()
    client.fetch(("t", 0), ("u", 3))
    (sent,) = cluster.fetcher(1).sent
    assert asked(sent) == [("t", 0), ("u", 3)]
    sent.give(b"records")
    await settled()
    assert client.fetched() == [("t", 0, 0, b"records"), ("u", 3, 0, b"records")]


async def test_partitions_go_where_their_cache_is_warm(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", second))
    assert cluster.fetcher(1).sent == []
    assert asked(cluster.fetcher(2).sent[0]) == [("t", second)]
    assert first != second


async def test_the_first_part_with_data_ends_the_wait_of_the_others(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", second), ("t", first))
    one, two = cluster.fetcher(1).sent[0], cluster.fetcher(2).sent[0]
    assert (one.fetched.max_wait_ms, two.fetched.max_wait_ms) == (500, 500)
    assert one.fetched.session_epoch == -1
    two.give(b"data")
    await settled()
    assert one.cancelled
    again = cluster.fetcher(1).sent[1]
    assert again.fetched.max_wait_ms <= 0
    again.give(b"")
    await settled()
    assert client.fetched() == [("t", second, 0, b"data"), ("t", first, 0, b"")]


async def test_who_is_asked_again_hears_how_long_the_client_has_waited_and_for_what(cluster: Cluster) -> None:
    """Else each would read from etcd at once: because the client is new, or because of a commit after its request."""
    first, second = split_over_two(cluster)
    clock = SystemClock()
    cluster.acked.commits.saw(41)
    began_ms = clock.now_ms()
    cluster.client().fetch(("t", second), ("t", first))
    await until(lambda: clock.now_ms() >= began_ms + 30)
    cluster.acked.commits.saw(77)
    cluster.fetcher(2).sent[0].give(b"data")
    await settled()
    again = cluster.fetcher(1).sent[1]
    assert -(clock.now_ms() - began_ms) <= again.fetched.max_wait_ms <= -29
    assert again.meta.revision == 41


@pytest.mark.parametrize("version", [4, 11, 15, 18])
async def test_a_client_cannot_say_that_it_has_waited_elsewhere(cluster: Cluster, version: int) -> None:
    """A negative wait is no wait, as in Kafka. Only a front door may tell a fetch service more by it."""
    cluster.serve(Backend.FETCH, 1)
    cluster.client().fetch(("t", 0), ("t", 1), version=version, max_wait_ms=-60_000)
    (whole,) = cluster.fetcher(1).sent
    assert whole.fetched.max_wait_ms == 0
    assert [partition for _, partition in asked(whole)] == [0, 1]


async def test_nor_can_a_client_of_several_instances(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    cluster.client().fetch(("t", first), ("t", second), max_wait_ms=-60_000)
    assert [cluster.fetcher(node).sent[0].fetched.max_wait_ms for node in NODES] == [0, 0]


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("version", [4, 11, 15, 18])
@pytest.mark.parametrize(("left_ms", "expected"), [(300, 300), (-5, 0), (9_000, 500), (None, 500)])
async def test_a_wait_ends_with_the_session_of_the_login(
    cluster: Cluster, version: int, instances: int, left_ms: int | None, expected: int
) -> None:
    first, second = split_over_two(cluster) if instances == 2 else (0, 1)
    if instances == 1:
        cluster.serve(Backend.FETCH, 1)
    client, now_ms = cluster.client(), cluster.door.gateway.clock.now_ms()
    client.connection.caller.session_ends_ms = None if left_ms is None else now_ms + left_ms
    client.fetch(("t", first), ("t", second), version=version, max_wait_ms=500)
    for sent in (sent for node in NODES[:instances] for sent in cluster.fetcher(node).sent):
        assert expected - 200 <= sent.fetched.max_wait_ms <= expected
        assert sent.fetched.max_wait_ms >= 0


@pytest.mark.parametrize("version", range(4))
async def test_versions_without_sessions_and_limits_are_split_and_joined_too(
    cluster: Cluster, version: int
) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", second), ("t", first), version=version)
    one, two = cluster.fetcher(1).sent[0], cluster.fetcher(2).sent[0]
    assert (asked(one), asked(two)) == ([("t", first)], [("t", second)])
    two.give(b"old")
    await settled()
    cluster.fetcher(1).sent[1].give(b"sets")
    await settled()
    assert client.fetched() == [("t", second, 0, b"old"), ("t", first, 0, b"sets")]


async def test_an_error_ends_the_wait_too(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", first), ("t", second))
    cluster.fetcher(1).sent[0].give(code=1)
    await settled()
    cluster.fetcher(2).sent[1].give(b"x")
    await settled()
    assert client.fetched() == [("t", first, 1, b""), ("t", second, 0, b"x")]


async def test_parts_without_data_wait_for_each_other(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", first), ("t", second))
    cluster.fetcher(1).sent[0].give(b"")
    await settled()
    assert client.answers == []
    assert not cluster.fetcher(2).sent[0].cancelled
    cluster.fetcher(2).sent[0].give(b"")
    await settled()
    assert client.fetched() == [("t", first, 0, b""), ("t", second, 0, b"")]


async def both_answer(cluster: Cluster, client: FakeClient, sizes: tuple[int, int]) -> None:
    cluster.fetcher(1).sent[0].give(b"1" * sizes[0])
    await settled()
    cluster.fetcher(2).sent[-1].give(b"2" * sizes[1])
    await settled()


@pytest.mark.parametrize(
    ("max_bytes", "sizes", "expected"),
    [(100, (60, 40), (60, 40)), (100, (60, 41), (60, 0)), (10, (60, 5), (60, 0)), (10, (0, 60), (0, 60))],
)
async def test_a_joined_answer_obeys_max_bytes_but_lets_the_first_records_through(
    cluster: Cluster, max_bytes: int, sizes: tuple[int, int], expected: tuple[int, int]
) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", first), ("t", second), max_bytes=max_bytes)
    if sizes[0]:
        await both_answer(cluster, client, sizes)
    else:
        cluster.fetcher(1).sent[0].give(b"")
        cluster.fetcher(2).sent[0].give(b"2" * sizes[1])
        await settled()
    assert tuple(len(records) for *_, records in client.fetched()) == expected


@pytest.mark.parametrize("status", [ReplyStatus.LOST, ReplyStatus.REFUSED, ReplyStatus.EXPIRED])
async def test_a_part_that_was_lost_or_not_read_goes_to_another_instance_once(
    cluster: Cluster, status: ReplyStatus
) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", first), ("t", second))
    cluster.fetcher(1).sent[0].reply(status=status)
    await settled()
    moved = cluster.fetcher(2).sent[1]
    assert asked(moved) == [("t", first)]
    moved.give(b"moved")
    await settled()
    cluster.fetcher(2).sent[2].give(b"x")
    await settled()
    assert client.fetched() == [("t", first, 0, b"moved"), ("t", second, 0, b"x")]


async def test_a_part_that_is_lost_twice_sends_its_client_to_the_metadata(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", first), ("t", second))
    cluster.fetcher(1).sent[0].lose(sent=True)
    await settled()
    cluster.fetcher(2).sent[1].lose(sent=False)
    await settled()
    cluster.fetcher(2).sent[2].give(b"x")
    await settled()
    assert client.fetched() == [("t", first, 6, b""), ("t", second, 0, b"x")]


async def test_a_dead_instance_that_is_still_registered_is_passed_over_at_once(cluster: Cluster) -> None:
    first, _ = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", first))
    cluster.fetcher(1).sent[0].lose(sent=False)
    await settled()
    cluster.fetcher(2).sent[0].give(b"x")
    await settled()
    assert client.fetched() == [("t", first, 0, b"x")]


async def test_a_request_that_one_instance_lost_is_repeated_at_another(cluster: Cluster) -> None:
    cluster.serve(Backend.FETCH, 1)
    client = cluster.client()
    client.fetch(("t", 0))
    cluster.fetcher(1).sent[0].lose(sent=True)
    cluster.serve(Backend.FETCH, 2)
    await until(lambda: bool(cluster.fetcher(2).sent))
    cluster.fetcher(2).sent[0].give(b"x")
    await settled()
    assert client.fetched() == [("t", 0, 0, b"x")]


async def test_without_a_fetch_service_consumers_are_sent_to_the_metadata(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.forwarding.WAIT_MS_MAX", 20)
    client = cluster.client()
    client.fetch(("t", 0))
    await until(lambda: bool(client.answers))
    assert client.fetched() == [("t", 0, 6, b"")]


async def test_a_request_that_continues_a_session_is_not_split_and_a_service_refuses_it(
    cluster: Cluster,
) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", first), ("t", second), session=(55, 2))
    sent = [*cluster.fetcher(1).sent, *cluster.fetcher(2).sent]
    assert [(each.fetched.session_id, each.fetched.session_epoch) for each in sent] == [(55, 2)]


async def test_a_request_that_opens_a_session_is_split_without_one(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    cluster.client().fetch(("t", first), ("t", second), session=(0, 0))
    sent = [cluster.fetcher(1).sent[0], cluster.fetcher(2).sent[0]]
    assert [(each.fetched.session_id, each.fetched.session_epoch) for each in sent] == [(0, -1)] * 2


async def test_a_leaving_client_cancels_every_part(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", first), ("t", second))
    client.leave()
    assert all(cluster.fetcher(node).sent[0].cancelled for node in NODES)


async def test_every_version_can_be_split(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    for version in range(4, 13):
        client = cluster.client()
        client.fetch(("t", first), ("t", second), version=version)
        cluster.fetcher(1).sent[-1].give(b"a")
        await settled()
        cluster.fetcher(2).sent[-1].give(b"b")
        await settled()
        assert client.fetched() == [("t", first, 0, b"a"), ("t", second, 0, b"b")]


@pytest.mark.parametrize("version", [4, 11, 12, 14, 15, 18])
def test_the_wait_is_read_where_each_version_has_it(version: int) -> None:
    body = b"".join(map(bytes, fetch.encode_request(fetch.FetchRequest(max_wait_ms=1234), version)))
    assert max_wait_ms(memoryview(body), version) == 1234


async def test_a_long_poll_does_not_time_out_before_its_own_wait_is_over(cluster: Cluster) -> None:
    cluster.serve(Backend.FETCH, 1)
    cluster.client().fetch(("t", 0), max_wait_ms=30_000)
    assert cluster.fetcher(1).sent[0].meta.age_budget_ms > 30_000


async def test_a_connection_has_one_fetch_at_a_time_until_it_has_taken_the_answer(cluster: Cluster) -> None:
    cluster.serve(Backend.FETCH, 1)
    client, other = cluster.client(), cluster.client()
    client.transport.takes = False
    for _ in range(3):
        client.fetch(("t", 0))
    sent = cluster.fetcher(1).sent
    assert len(sent) == 1
    sent[0].give(bytes(2 << 20))
    await settled()
    assert len(sent) == 1, "the first answer waits in the socket"
    other.fetch(("t", 0))
    assert len(sent) == 2, "others do not wait for it"
    client.transport.buffered = 0
    client.connection.resume_writing()
    assert len(sent) == 3
    client.transport.takes = True
    sent[2].give(b"second")
    await settled()
    sent[3].give(b"third")
    await settled()
    assert [client.fetched(n)[0][3][:6] for n in (1, 2)] == [b"second", b"third"]


async def test_answers_that_wait_behind_a_fetch_do_not_hold_it_up(cluster: Cluster) -> None:
    """They leave after it: a fetch that waited for them would wait for itself."""
    cluster.serve(Backend.FETCH, 1)
    client, sent = cluster.client(), cluster.fetcher(1).sent
    for _ in range(2):
        client.fetch(("t", 0))
        client.ask(ApiKey.API_VERSIONS, 0)
    sent[0].give(b"first")
    await settled()
    assert len(sent) == 2
    sent[1].give(b"second")
    await settled()
    assert [answer.correlation_id for answer in client.answers] == [1, 2, 3, 4]


async def test_without_room_for_a_large_answer_a_small_one_is_asked_for() -> None:
    async with Cluster.running(memory_bytes=64 << 20) as cluster:
        cluster.serve(Backend.FETCH, 1)
        for _ in range(5):
            cluster.client().fetch(("t", 0), max_bytes=50 << 20)
        asked = [sent.fetched.max_bytes for sent in cluster.fetcher(1).sent]
        assert asked == [8 << 20, 8 << 20, 8 << 20, 1 << 20, 1 << 20]
        assert all(sent.fetched.topics[0].topic == "t" for sent in cluster.fetcher(1).sent)
        cluster.fetcher(1).sent[0].give(b"few")
        await settled()
        cluster.client().fetch(("t", 0), max_bytes=50 << 20, version=17)
        assert cluster.fetcher(1).sent[-1].fetched.max_bytes == 8 << 20


async def test_a_connection_at_the_end_of_the_log_reserves_no_memory_for_its_next_fetch() -> None:
    async with Cluster.running(memory_bytes=64 << 20) as cluster:
        cluster.serve(Backend.FETCH, 1)
        client = cluster.client()
        for records in (b"", bytes(600 << 10), b""):
            client.fetch(("t", 0), max_bytes=50 << 20)
            cluster.fetcher(1).sent[-1].give(records)
            await settled()
        asked = [sent.fetched.max_bytes for sent in cluster.fetcher(1).sent]
        assert asked == [8 << 20, 1 << 20, 8 << 20]


async def test_the_parts_of_a_split_fetch_together_ask_for_what_the_client_takes(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    cluster.client().fetch(("t", first), ("t", second), max_bytes=1_001)
    assert [cluster.fetcher(node).sent[0].fetched.max_bytes for node in NODES] == [501, 501]


async def test_a_fetch_that_is_lost_twice_goes_to_no_third_instance(cluster: Cluster) -> None:
    """It may be what ended them."""
    cluster.serve(Backend.FETCH, 1, 2, 3)
    client = cluster.client()
    client.fetch(("unknown", 0))
    streams = [cluster.fetcher(node) for node in (1, 2, 3)]
    for _ in range(2):
        await until(lambda: any(not sent.future.done() for stream in streams for sent in stream.sent))
        next(sent for stream in streams for sent in stream.sent if not sent.future.done()).lose(sent=True)
    await until(lambda: bool(client.answers))
    assert sum(len(stream.sent) for stream in streams) == 2


async def test_a_split_fetch_that_is_lost_twice_goes_to_no_third_instance(cluster: Cluster) -> None:
    first, second = split_over_two(cluster)
    cluster.serve(Backend.FETCH, *NODES, 3)
    client = cluster.client()
    client.fetch(("t", first), ("t", second))
    streams = [cluster.fetcher(node) for node in (*NODES, 3)]
    while not client.answers:
        for sent in [one for stream in streams for one in stream.sent if not one.future.done()]:
            sent.lose(sent=True)
        await settled()
    for partition in (first, second):
        had = [s for s in streams if any(partition in partitions_of(sent) for sent in s.sent)]
        assert len(had) == 2, "its own instance and one other"
    assert {code for _, _, code, _ in client.fetched()} == {6}


def partitions_of(sent: Sent) -> list[int]:
    return [entry.partition for topic in sent.fetched.topics for entry in topic.partitions]
