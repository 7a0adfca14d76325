"""Workers of one front door count the usage of quotas together."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.access.principals import user
from kafscale.access.quota import QuotaEntity, QuotaKey, QuotaTable
from kafscale.access.quota_rates import Window
from kafscale.frontdoor import usage_page
from kafscale.frontdoor.client_quotas import ClientQuotas
from kafscale.frontdoor.usage_page import PART_BYTES, PLACES, SharedUsage, UsagePage, meter_number
from kafscale.frontdoor.worker import make_page, open_page, open_usage

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, APP = ("alice", None), (None, "app")


def pages(workers: int) -> list[UsagePage]:
    memory = memoryview(bytearray(workers * PART_BYTES))
    return [UsagePage(memory, worker) for worker in range(workers)]


def test_what_one_worker_counts_the_others_read_once() -> None:
    one, two, three = pages(3)
    one.add(7, 10)
    one.add(7, 5)
    two.add(7, 1)
    assert list(two.news()) == [(7, 15)]
    assert list(two.news()) == []
    assert sorted(three.news()) == [(7, 1), (7, 15)]
    assert list(one.news()) == [(7, 1)]
    one.add(7, 2)
    assert list(two.news()) == [(7, 2)]


def test_a_worker_that_begins_again_reads_nothing_from_before() -> None:
    memory = memoryview(bytearray(2 * PART_BYTES))
    one = UsagePage(memory, 0)
    one.add(7, 1_000)
    again = UsagePage(memory, 1)
    assert list(again.news()) == []
    UsagePage(memory, 0).add(7, 1)
    assert list(again.news()) == [(7, 1)]


def test_a_meter_that_takes_the_place_of_another_begins_at_zero() -> None:
    one, two = pages(2)
    one.add(3, 10)
    assert list(two.news()) == [(3, 10)]
    one.add(3 + PLACES, 4)
    assert list(two.news()) == [(3 + PLACES, 4)]
    one.add(3, 1)
    assert list(two.news()) == [(3, 1)]


def test_a_place_that_changes_hands_counts_nothing() -> None:
    one, two = pages(2)
    one.add(3, 10)
    list(two.news())
    one._amounts[0][3] = 0.0  # the writer was stopped here
    assert list(two.news()) == []


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 20), st.integers(1, 100), st.booleans()), max_size=80
    )
)
def test_every_worker_has_all_usage_of_the_others(steps: list[tuple[int, int, int, bool]]) -> None:
    workers = pages(3)
    added: list[dict[int, float]] = [defaultdict(float) for _ in workers]
    read: list[dict[int, float]] = [defaultdict(float) for _ in workers]

    def look(worker: int) -> None:
        for number, amount in workers[worker].news():
            read[worker][number] += amount

    for worker, number, amount, looks in steps:
        workers[worker].add(number, amount)
        added[worker][number] += amount
        if looks:
            look((worker + 1) % 3)
    for worker in range(3):
        look(worker)
        others = [one for other, one in enumerate(added) if other != worker]
        numbers = {number for one in others for number in one}
        assert read[worker] == {number: sum(one.get(number, 0) for one in others) for number in numbers}


def test_meters_have_different_numbers() -> None:
    meters = [
        (None, "a"),
        ("a", None),
        ("a", ""),
        ("", "a"),
        ("a", "a"),
        ("-", None),
        (None, "-"),
        ("=a", None),
    ]
    numbers = {meter_number(key, meter) for key in QuotaKey for meter in meters}
    assert len(numbers) == len(meters) * len(QuotaKey)
    assert 0 not in numbers


def test_a_worker_takes_the_usage_of_its_own_clients_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_page, "KNOWN_MAX", 2)
    one, two = map(SharedUsage, pages(2))
    one.counted(PRODUCER, ALICE, 10)
    one.counted(CONSUMER, APP, 20)
    assert list(two.news()) == []
    two.counted(PRODUCER, ALICE, 1)
    one.counted(PRODUCER, ALICE, 5)
    one.counted(CONSUMER, APP, 5)
    assert list(two.news()) == [(PRODUCER, ALICE, 5)]
    two.counted(CONSUMER, ALICE, 1)
    two.counted(CONSUMER, APP, 1)
    one.counted(PRODUCER, ALICE, 5)
    assert list(two.news()) == [], "only some meters are known, and the one unused for longest was forgotten"


def test_workers_that_read_each_other_throttle_by_the_whole_usage() -> None:
    page = make_page(2)
    shared = [SharedUsage(UsagePage(open_usage(page, 2), worker)) for worker in range(2)]
    table = QuotaTable()
    table.put(QuotaEntity(user="alice"), PRODUCER, 1_000)
    doors = [ClientQuotas(table, Window(), lambda *_: None, one.counted) for one in shared]

    def produce(worker: int, size: int, now_ms: int) -> int:
        usage = doors[worker].begin(user("alice"), "app", 1)
        doors[worker].produced(usage, size, now_ms)
        return usage.throttle_ms(now_ms)

    assert (produce(0, 1, 0), produce(1, 1, 0)) == (0, 0)
    assert (produce(0, 7_000, 0), produce(1, 7_000, 0)) == (0, 0)
    for door, one in zip(doors, shared, strict=True):
        for key, meter, amount in one.news():
            door.others_used(key, meter, amount, 250)
    assert produce(0, 1, 250) > 3_000
    assert produce(1, 1, 250) > 3_000
    assert len(open_page(page, 2)) == 4, "revisions have their own slots"
    assert not any(open_page(page, 2))
    os.close(page)
