"""Who is over a quota, and until when: the machine alone, with its own time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.principals import Principal, user
from kafscale.access.quota import Default, QuotaEntity, QuotaKey, QuotaTable
from kafscale.access.quota_rates import Window
from kafscale.frontdoor.quotas.client_quotas import THROTTLE_MS_MAX, ClientQuotas, Usage

PRODUCER, CONSUMER, REQUEST = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
)
ALICE, BOB = user("alice"), user("bob")
SECOND_NS = 1_000_000_000


class Door:
    def __init__(self, *limits: tuple[QuotaEntity, QuotaKey, float]) -> None:
        self.seen: list[tuple[QuotaKey, int]] = []
        table = QuotaTable()
        for limit in limits:
            table.put(*limit)
        self.quotas = ClientQuotas(table, Window(), lambda *throttled: self.seen.append(throttled))

    def usage(self, principal: str = ALICE, client_id: str | None = "app") -> Usage:
        return self.quotas.begin(Principal(principal), client_id, 1)

    def produce(self, size: int, now_ms: int, principal: str = ALICE, client_id: str | None = "app") -> int:
        """The throttle time."""
        usage = self.usage(principal, client_id)
        self.quotas.produced(usage, size, now_ms)
        return usage.throttle_ms(now_ms)

    def fetch(self, wanted: int, now_ms: int, principal: str = ALICE) -> tuple[int, int]:
        """Takes all that it may. The bytes and the throttle time."""
        usage = self.usage(principal)
        given = self.quotas.fetch_bytes(usage, wanted, now_ms)
        self.quotas.fetched(usage, given, now_ms)
        return given, usage.throttle_ms(now_ms)


def on_alice(key: QuotaKey, value: float) -> tuple[QuotaEntity, QuotaKey, float]:
    return QuotaEntity(user="alice"), key, value


def test_a_producer_is_throttled_until_its_rate_is_at_the_limit() -> None:
    door = Door(on_alice(PRODUCER, 1_000))
    assert door.produce(10_000, 0) == 0
    assert door.produce(500, 0) == 500
    assert door.seen == [(PRODUCER, 500)]
    assert door.produce(1_000_000, 0, BOB) == 0, "who has no quota is not throttled"


def test_connections_of_one_meter_share_the_limit_and_others_do_not() -> None:
    door = Door((QuotaEntity(client_id=Default.DEFAULT), PRODUCER, 1_000))
    assert door.produce(10_000, 0, ALICE, "app") == 0
    assert door.produce(1_000, 0, BOB, "app") == 1_000, "the meter is that of the client id"
    assert door.produce(1_000, 0, BOB, "other") == 0
    assert door.produce(10_000, 0, BOB, None) == 0
    assert door.produce(1_000, 0, ALICE, "") == 1_000, "no client id is an empty one"


def test_the_most_specific_quota_applies() -> None:
    door = Door(on_alice(PRODUCER, 1), (QuotaEntity(user="alice", client_id="app"), PRODUCER, 1_000_000))
    assert door.produce(100_000, 0) == 0
    assert door.produce(100, 0, ALICE, "other") > 0


def test_a_fetch_takes_what_is_left_of_the_window_then_one_sample_and_then_nothing() -> None:
    door = Door(on_alice(CONSUMER, 1_000))
    assert door.fetch(6_000, 0) == (6_000, 0)
    assert door.fetch(50_000, 0) == (4_000, 0)
    assert door.fetch(50_000, 0) == (1_000, 1_000)
    assert door.fetch(50_000, 500) == (0, 500), "who waits too little gets nothing, and waits on"
    assert door.fetch(50_000, 11_000) == (10_000, 0), "the window is empty again"
    assert door.fetch(50_000, 0, BOB) == (50_000, 0)


def test_an_empty_answer_does_not_count() -> None:
    door = Door(on_alice(CONSUMER, 1_000))
    for _ in range(2):
        door.fetch(50_000, 0)
    assert [door.fetch(50_000, 1)[0] for _ in range(50)] == [0] * 50
    assert door.fetch(50_000, 11_000)[0] == 10_000


def test_the_work_of_a_request_is_a_share_of_one_core_and_throttles_for_one_sample_at_most() -> None:
    door = Door(on_alice(REQUEST, 10))

    def work(seconds: float, now_ms: int) -> int:
        usage = door.quotas.begin(ALICE, "app", 5)
        usage.end_work(5 + int(seconds * SECOND_NS / 2))
        usage.began_ns = SECOND_NS
        door.quotas.worked(usage, now_ms, SECOND_NS + int(seconds * SECOND_NS / 2))
        return usage.throttle_ms(now_ms)

    assert work(1, 0) == 0, "a second in ten is 10 percent"
    assert work(0.05, 0) == 500
    assert work(5, 0) == 1_000


def test_work_that_has_ended_is_not_counted_twice() -> None:
    usage = Usage("alice", "", 100)
    usage.end_work(150)
    usage.end_work(900)
    assert usage.work_ns == 50


@pytest.mark.parametrize(("size", "at_most"), [(10**12, THROTTLE_MS_MAX), (2_000_000, 1_990_000)])
def test_a_throttle_time_is_bounded(size: int, at_most: int) -> None:
    door = Door(on_alice(PRODUCER, 1_000))
    assert door.produce(size, 0) == min(at_most, THROTTLE_MS_MAX)


def test_a_service_throttles_too_and_the_longest_time_holds() -> None:
    door = Door(on_alice(PRODUCER, 1_000))
    usage = door.usage()
    door.quotas.produced(usage, 10_300, 0)
    door.quotas.throttled(usage, QuotaKey.CONTROLLER_MUTATION_RATE, 200, 0)
    assert usage.throttle_ms(0) == 300
    door.quotas.throttled(usage, QuotaKey.CONTROLLER_MUTATION_RATE, 10**9, 0)
    assert usage.throttle_ms(0) == THROTTLE_MS_MAX
    door.quotas.throttled(usage, QuotaKey.CONTROLLER_MUTATION_RATE, 0, 0)
    assert [key for key, _ in door.seen] == [PRODUCER] + [QuotaKey.CONTROLLER_MUTATION_RATE] * 2


@given(
    st.integers(1, 4),
    st.lists(st.integers(10, 200), min_size=1, max_size=5),
    st.booleans(),
)
def test_connections_that_wait_as_they_are_asked_have_their_limit_together(
    connections: int, sizes: list[int], fetches: bool
) -> None:
    """Over 66 s, which are six windows: the first begins with the burst of one. A request is at most a fifth of what
    the limit gives in a second; larger ones exceed it for longer, as in Kafka."""
    door = Door(on_alice(PRODUCER, 1_000), on_alice(CONSUMER, 1_000))
    due, used, turn = [0] * connections, 0, 0
    while min(due) < 132_000:
        number = due.index(min(due))
        now_ms, turn = due[number], turn + 1
        size = sizes[turn % len(sizes)]
        if fetches:
            size, throttle_ms = door.fetch(size, now_ms)
        else:
            throttle_ms = door.produce(size, now_ms)
        used += size if now_ms >= 66_000 else 0
        due[number] = now_ms + max(1, throttle_ms)
    assert used == pytest.approx(66_000, rel=0.1)


def test_what_is_owed_is_not_forgotten_with_the_window_nor_cut_to_what_an_answer_says() -> None:
    door = Door(on_alice(PRODUCER, 1_000))
    assert door.produce(3_610_000, 0) == THROTTLE_MS_MAX
    for now_ms in (0, 600_000, 3_599_999):
        assert door.quotas.owed_ms(door.usage(), PRODUCER, now_ms) == 3_600_000 - now_ms
    assert door.quotas.owed_ms(door.usage(), PRODUCER, 3_600_000) == 0
    assert door.quotas.owed_ms(door.usage(BOB), PRODUCER, 0) == 0


def test_a_connection_that_was_muted_owes_only_what_is_longer_than_its_mute() -> None:
    door = Door(on_alice(PRODUCER, 1_000))

    def again(before: Usage) -> Usage:
        return door.quotas.begin(Principal(ALICE), "app", 1, before.dues)

    kept = door.usage()
    door.quotas.produced(kept, 10_500, 0)
    door.produce(20_000, 0)
    assert door.quotas.owed_ms(again(kept), PRODUCER, 0) == 0
    assert door.quotas.owed_ms(door.usage(), PRODUCER, 0) == 20_500
    door.quotas.produced(kept, 1_000_000, 0)
    assert door.quotas.owed_ms(again(kept), PRODUCER, THROTTLE_MS_MAX) == 1_020_500 - THROTTLE_MS_MAX
    door.quotas.produced(kept, 1, 1_020_500)
    assert door.quotas.owed_ms(again(kept), PRODUCER, 1_020_500) == 0


def test_what_a_connection_owes_on_one_meter_does_not_count_on_another() -> None:
    each = QuotaEntity(client_id=Default.DEFAULT)
    door = Door((each, PRODUCER, 1_000))
    first = door.quotas.begin(Principal(ALICE), "one", 1, {})
    door.quotas.produced(first, 1, 0)
    door.produce(20_000, 0, client_id="two")
    second = door.quotas.begin(Principal(ALICE), "two", 1, first.dues)
    assert door.quotas.owed_ms(second, PRODUCER, 0) == 10_000


def test_what_meters_owe_is_forgotten_when_it_is_over() -> None:
    each = QuotaEntity(client_id=Default.DEFAULT)
    door = Door((each, PRODUCER, 1_000))
    for number in range(50):
        door.produce(10_100, number * 1_000, client_id=f"client-{number}")
    assert len(door.quotas._owed) == 1
