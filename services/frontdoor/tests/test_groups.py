"""Calls about one group: to the coordinator of its slot, in order, and at most once."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from door_harness import Cluster, settled, until
from group_requests import ONE, ONE_GROUP, TWO, about, answered, ask, code_of, coordinators, joined, sent_to
from kafscale.access.quota import QuotaTable
from kafscale.frontdoor import apis, server
from kafscale.frontdoor.api import ToSlot
from kafscale.frontdoor.apis import SERVED
from kafscale.frontdoor.assembly import Means
from kafscale.frontdoor.group_calls import GRACE_MS
from kafscale.frontdoor.handlers.sync_group import WAIT_MS
from kafscale.frontdoor.key_fields import group_of, text_field
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.age import AGE_MS_MAX
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import WireError
from kafscale.wire.schema import join_group, module_of, offset_commit
from kafscale.wire.varints import encode_uvarint

NEWEST = [(key, version) for key, version in ONE_GROUP if (key, version + 1) not in ONE_GROUP]
UNAVAILABLE, NOT_COORDINATOR = 15, 16


@pytest.mark.parametrize(("key", "version"), ONE_GROUP)
def test_the_group_is_read_off_every_request_about_one(key: int, version: int) -> None:
    module = module_of(key)
    for group in ("", "g", "größe", "n" * 300):
        body = memoryview(joined(module.encode_request(about(key, group, version), version)))
        assert group_of(body, flexible=version >= module.FLEXIBLE_FROM) == group


def test_only_heartbeats_wait_for_others() -> None:
    """A client waits for all other answers before it goes on."""
    assert {api.key for api in SERVED.values() if api.patient} == {
        ApiKey.HEARTBEAT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }


@pytest.mark.parametrize(
    ("body", "flexible"),
    [
        (b"", False),
        (b"\0", False),
        (b"\0\5abc", False),
        (b"\xff\xff", False),
        (b"", True),
        (b"\0", True),
        (b"\5abc", True),
        (b"\x80", True),
    ],
)
def test_a_group_id_that_is_null_or_cut_short_is_none(body: bytes, flexible: bool) -> None:
    with pytest.raises(WireError):
        group_of(memoryview(body), flexible=flexible)


@pytest.mark.parametrize("flexible", [False, True])
def test_a_key_may_be_behind_other_texts(flexible: bool) -> None:
    """As the group is in TxnOffsetCommit, behind the transactional id."""

    def text(value: str | None) -> bytes:
        if value is None:
            return b"\0" if flexible else b"\xff\xff"
        size = len(value.encode())
        return (encode_uvarint(size + 1) if flexible else size.to_bytes(2, "big")) + value.encode()

    for texts in (["id", "größe"], ["", "n" * 300], ["n" * 300, None], [None, "g"], [None, ""]):
        body = memoryview(b"".join(map(text, texts)))
        assert [text_field(body, place, flexible=flexible) for place in (0, 1)] == texts
        for cut in range(len(body)):
            with pytest.raises(WireError):
                text_field(body[:cut], 1, flexible=flexible)


async def test_a_call_goes_to_the_slot_of_the_key_that_its_registration_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def second(body: memoryview, *, flexible: bool) -> str:
        return text_field(body, 1, flexible=flexible) or ""

    heartbeat = replace(SERVED[ApiKey.HEARTBEAT], dispatch=ToSlot(key_of=second))
    monkeypatch.setattr(apis, "SERVED", {**SERVED, int(ApiKey.HEARTBEAT): heartbeat})
    async with Cluster.running() as cluster:
        coordinators(cluster, g1=1, g2=2)
        cluster.client().ask(int(ApiKey.HEARTBEAT), 4, b"\4g-1\4g-2")
        assert (len(sent_to(cluster, 1)), len(sent_to(cluster, 2))) == (0, 1)


@pytest.mark.parametrize(("key", "version"), ONE_GROUP)
def test_a_group_id_that_is_not_utf8_is_the_one_that_its_service_reads(key: int, version: int) -> None:
    """Otherwise another slot's coordinator would get the call."""
    module = module_of(key)
    body = joined(module.encode_request(about(key, "group-?", version), version)).replace(b"?", b"\xff")
    routed = group_of(memoryview(body), flexible=version >= module.FLEXIBLE_FROM)
    assert routed == module.decode_request(body, version).group_id == "group-\ufffd"


@pytest.mark.parametrize(("key", "version"), ONE_GROUP)
async def test_a_call_and_its_answer_pass_unread_by_the_owner_of_the_slot(
    cluster: Cluster, key: int, version: int
) -> None:
    coordinators(cluster, g1=2, g2=1)
    client = cluster.client()
    body = ask(client, key, version, about(key, ONE, version))
    (sent,) = sent_to(cluster, 2)
    assert sent_to(cluster, 1) == []
    assert sent.body == body
    sent.reply(b"whatever it says")
    await settled()
    assert client.answers[0].body == b"whatever it says"


async def test_the_coordinator_learns_who_asks_and_from_where(cluster: Cluster) -> None:
    coordinators(cluster, g1=1)
    ask(cluster.client(), 11, 9, about(11, ONE, 9))
    meta = sent_to(cluster, 1)[0].meta
    assert (meta.client_id, meta.peer, meta.listener) == ("test", "127.0.0.1:5", "PLAINTEXT")


@pytest.mark.parametrize(("key", "version"), ONE_GROUP)
async def test_without_a_coordinator_the_answer_comes_at_once_and_nothing_is_sent(
    cluster: Cluster, key: int, version: int
) -> None:
    coordinators(cluster, g2=1)
    client = cluster.client()
    ask(client, key, version, about(key, ONE, version))
    await settled()
    assert code_of(key, version, answered(client)) == (NOT_COORDINATOR if key == 9 else UNAVAILABLE)
    assert cluster.streams == {}


@pytest.mark.parametrize(("key", "version"), NEWEST)
@pytest.mark.parametrize("failure", ["lost", "died"])
async def test_what_may_have_been_done_is_not_coordinator_and_is_not_sent_again(
    cluster: Cluster, key: int, version: int, failure: str
) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, key, version, about(key, ONE, version))
    (sent,) = sent_to(cluster, 1)
    if failure == "lost":
        sent.lose(sent=True)
    else:
        sent.reply(status=ReplyStatus.FAILED)
    cluster.slots.set(ONE, "2/a")
    await settled()
    assert code_of(key, version, answered(client)) == NOT_COORDINATOR
    assert (len(sent_to(cluster, 1)), len(sent_to(cluster, 2))) == (1, 0)


@pytest.mark.parametrize("failure", ["unsent", "expired", "refused"])
async def test_what_was_certainly_not_done_is_not_sent_again_either(cluster: Cluster, failure: str) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, 8, 10, about(8, ONE, 10))
    (sent,) = sent_to(cluster, 1)
    if failure == "unsent":
        sent.lose(sent=False)
    else:
        sent.reply(status=ReplyStatus[failure.upper()])
    await settled()
    assert code_of(8, 10, answered(client)) == UNAVAILABLE
    assert len(sent_to(cluster, 1)) == 1


@pytest.mark.parametrize("version", range(2, 11))
async def test_a_lost_commit_names_every_partition(cluster: Cluster, version: int) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, 8, version, about(8, ONE, version))
    sent_to(cluster, 1)[0].lose(sent=True)
    await settled()
    (topic,) = answered(client).topics
    assert topic.name == ("t" if version < 10 else "")
    assert [(entry.partition_index, entry.error_code) for entry in topic.partitions] == [(3, NOT_COORDINATOR)]


@pytest.mark.parametrize("version", range(10))
async def test_a_refused_join_has_no_generation_and_the_member_id_that_came(
    cluster: Cluster, version: int
) -> None:
    client = cluster.client()
    ask(client, 11, version, about(11, ONE, version))
    await settled()
    response = answered(client)
    assert (response.error_code, response.generation_id, response.member_id) == (UNAVAILABLE, -1, "m")
    assert response.protocol_name == (None if version >= 7 else "")
    assert response.members == []


async def test_calls_of_one_connection_take_one_lane_in_their_order(cluster: Cluster) -> None:
    coordinators(cluster, g1=1, g2=1)
    client, other = cluster.client(), cluster.client()
    for number in range(20):
        group = TWO if number % 3 else ONE
        commit = offset_commit.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=number)
        ask(client, 8, 9, commit)
    ask(other, 8, 9, about(8, ONE, 9))
    sent = sent_to(cluster, 1)
    requests = [offset_commit.decode_request(one.body, 9) for one in sent[:20]]
    assert [request.generation_id_or_member_epoch for request in requests] == list(range(20))
    assert len({one.lane for one in sent[:20]}) == 1
    assert sent[20].lane != sent[0].lane


async def test_after_a_move_the_next_call_goes_to_the_new_owner_and_the_lost_one_nowhere(
    cluster: Cluster,
) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, 8, 9, about(8, ONE, 9))
    cluster.slots.set(ONE, "", handoff_to="2")
    ask(client, 8, 9, about(8, ONE, 9))
    sent_to(cluster, 1)[0].lose(sent=True)
    sent_to(cluster, 2)[0].reply(*offset_commit.encode_response(offset_commit.OffsetCommitResponse(), 9))
    await settled()
    assert code_of(8, 9, answered(client)) == NOT_COORDINATOR
    assert (len(sent_to(cluster, 1)), len(sent_to(cluster, 2))) == (1, 1)


async def test_a_client_that_leaves_withdraws_its_join(cluster: Cluster) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, 11, 9, about(11, ONE, 9))
    (sent,) = sent_to(cluster, 1)
    assert not sent.cancelled
    client.leave()
    assert sent.cancelled


async def test_a_client_that_closes_its_half_withdraws_its_join_soon(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.frontdoor.client.EOF_GRACE_MS", 10)
    coordinators(cluster, g1=1)
    client = cluster.client()
    ask(client, 11, 9, about(11, ONE, 9))
    assert client.connection.eof_received() is True
    (sent,) = sent_to(cluster, 1)
    await until(lambda: sent.cancelled)
    assert client.hung_up


JOIN = join_group.JoinGroupRequest(group_id=ONE, session_timeout_ms=200_000, rebalance_timeout_ms=400_000)
SHORT = join_group.JoinGroupRequest(group_id=ONE, session_timeout_ms=10, rebalance_timeout_ms=-5)
LONG = join_group.JoinGroupRequest(group_id=ONE, rebalance_timeout_ms=(1 << 31) - 1)


@pytest.mark.parametrize(
    ("key", "version", "message", "budget_ms"),
    [
        (11, 9, JOIN, 400_000 + GRACE_MS),
        (11, 1, JOIN, 400_000 + GRACE_MS),
        (11, 0, JOIN, 200_000 + GRACE_MS),
        (11, 9, SHORT, 60_000),
        (11, 9, LONG, 1_800_000 + GRACE_MS),
        (14, 5, about(14, ONE, 5), WAIT_MS + GRACE_MS),
        (12, 4, about(12, ONE, 4), 60_000),
        (8, 9, about(8, ONE, 9), AGE_MS_MAX),
        (68, 1, about(68, ONE, 1), AGE_MS_MAX),
    ],
)
async def test_a_call_has_as_long_as_a_rebalance_may_keep_it(
    cluster: Cluster, key: int, version: int, message: object, budget_ms: int
) -> None:
    coordinators(cluster, g1=1)
    ask(cluster.client(), key, version, message)
    age_budget_ms = sent_to(cluster, 1)[0].meta.age_budget_ms
    assert budget_ms - 1_000 < age_budget_ms <= budget_ms


@pytest.mark.parametrize(("stopped_ms", "passes"), [(AGE_MS_MAX - 1_000, True), (AGE_MS_MAX + 1, False)])
@pytest.mark.parametrize(("key", "version"), [(8, 9), (68, 1)])
async def test_what_may_not_come_late_is_refused_if_it_stood_unread_while_the_door_was_stopped(
    cluster: Cluster, key: int, version: int, stopped_ms: int, passes: bool
) -> None:
    """A commit, and what a member says of its partitions."""
    coordinators(cluster, g1=1)
    cluster.watch.stopped_ms = stopped_ms
    client = cluster.client()
    ask(client, key, version, about(key, ONE, version))
    ask(client, 12, 4, about(12, ONE, 4))
    await settled()
    sent = [request.meta.api_key for request in sent_to(cluster, 1)]
    assert sent == ([key, 12] if passes else [12])
    if not passes:
        assert code_of(key, version, answered(client)) == UNAVAILABLE


async def test_a_front_door_of_one_process_learns_that_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its service must have the watch that ticks: a fresh one has seen no stop."""
    given: list[Means] = []

    class Built(Exception):
        pass

    def service(_settings: object, means: Means, **_others: object) -> None:
        given.append(means)
        raise Built

    monkeypatch.setattr(server, "Service", service)
    unused: Any = None
    runtime = SimpleNamespace(
        settings=FrontdoorSettings(),
        clock=SystemClock(),
        watch=LoopWatch(SystemClock()),
        access=SimpleNamespace(view=SimpleNamespace(quotas=QuotaTable()), views={}),
        registration=SimpleNamespace(instance=SimpleNamespace(node_id=1)),
        metrics=Metrics("frontdoor"),
        **dict.fromkeys(
            ("etcd", "keyspace", "topics", "task_group", "tracer", "budget", "dial", "authorization"), unused
        ),
    )
    with pytest.raises(Built):
        async with server.build(cast("Any", runtime), doors=(), tls={}):
            raise AssertionError("the service was not asked for")
    assert given[0].watch is runtime.watch


async def test_the_wait_for_other_members_has_a_bound() -> None:
    async with Cluster.running(
        frontdoor_join_wait_ms_max=1_000, frontdoor_request_timeout_ms=1_000
    ) as cluster:
        coordinators(cluster, g1=1)
        ask(cluster.client(), 11, 9, LONG)
        assert sent_to(cluster, 1)[0].meta.age_budget_ms <= 1_000 + GRACE_MS


async def test_a_call_without_an_answer_in_time_is_not_coordinator_and_withdrawn() -> None:
    async with Cluster.running(frontdoor_request_timeout_ms=1_000) as cluster:
        coordinators(cluster, g1=1)
        client = cluster.client()
        ask(client, 12, 4, about(12, ONE, 4))
        (sent,) = sent_to(cluster, 1)
        await until(lambda: bool(client.answers))
        assert answered(client).error_code == NOT_COORDINATOR
        assert sent.cancelled


async def test_an_answer_that_comes_too_late_is_dropped() -> None:
    async with Cluster.running(frontdoor_request_timeout_ms=1_000) as cluster:
        coordinators(cluster, g1=1)
        client = cluster.client()
        ask(client, 12, 4, about(12, ONE, 4))
        (sent,) = sent_to(cluster, 1)
        sent.cancel = lambda: None  # type: ignore[method-assign]
        await until(lambda: bool(client.answers))
        sent.reply(b"late")
        await settled()
        assert len(client.answers) == 1


@pytest.mark.parametrize(("key", "version"), NEWEST)
async def test_a_request_that_cannot_be_read_ends_the_connection(
    cluster: Cluster, key: int, version: int
) -> None:
    client = cluster.client()
    client.ask(key, version, b"")
    assert client.hung_up


async def test_a_body_that_only_the_coordinator_found_broken_ends_the_connection(cluster: Cluster) -> None:
    coordinators(cluster, g1=1)
    client = cluster.client()
    client.ask(12, 0, b"\0\3g-1 and no more")
    sent_to(cluster, 1)[0].reply(status=ReplyStatus.FAILED)
    await settled()
    assert client.hung_up


async def test_a_parked_join_holds_up_no_other_connection(cluster: Cluster) -> None:
    coordinators(cluster, g1=1)
    waiting, other = cluster.client(), cluster.client()
    ask(waiting, 11, 9, about(11, ONE, 9))
    ask(other, 12, 4, about(12, ONE, 4))
    sent_to(cluster, 1)[1].reply(b"beat")
    await settled()
    assert (len(waiting.answers), other.answers[0].body) == (0, b"beat")
