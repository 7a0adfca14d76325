"""Processes of one front door count the usage of quotas together, and each keeps to its part of the quota."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.principals import user
from kafscale.access.quota import QuotaEntity, QuotaKey, QuotaTable
from kafscale.access.quota_rates import Window
from kafscale.frontdoor.quotas import usage_page
from kafscale.frontdoor.quotas.client_quotas import ClientQuotas
from kafscale.frontdoor.quotas.usage_page import (
    PART_BYTES,
    PLACES,
    SharedUsage,
    UsagePage,
    UsagePart,
    UsageReader,
    meter_number,
    page_bytes,
)
from kafscale.frontdoor.worker import make_page, open_page, open_usage

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, APP = ("alice", None), (None, "app")


def part() -> UsagePart:
    return UsagePart(memoryview(bytearray(PART_BYTES)))


def page(workers: int) -> UsagePage:
    return UsagePage(memoryview(bytearray(page_bytes(workers))), workers)


def test_what_is_counted_is_read_once_by_each_reader() -> None:
    one = part()
    readers = UsageReader(one), UsageReader(one)
    one.add(7, 10)
    one.add(7, 5)
    assert readers[0].news() == {7: 15}
    assert readers[0].news() == {}
    one.add(7, 2)
    one.add(8, 1)
    assert readers[0].news() == {7: 2, 8: 1}
    assert readers[1].news() == {7: 17, 8: 1}


def test_a_reader_that_begins_later_counts_nothing_from_before() -> None:
    one = part()
    one.add(7, 1_000)
    reader = UsageReader(one)
    assert reader.news() == {}
    one.add(7, 1)
    assert reader.news() == {7: 1}


def test_a_meter_that_takes_the_place_of_another_begins_at_zero() -> None:
    one = part()
    reader = UsageReader(one)
    for number, amount in ((3, 10), (3 + PLACES, 4), (3, 1)):
        one.add(number, amount)
        assert reader.news() == {number: amount}


def test_a_place_that_changes_hands_counts_nothing() -> None:
    one = part()
    reader = UsageReader(one)
    one.add(3, 10)
    reader.news()
    one._amounts[3] = 0.0  # the writer was stopped here
    one.add(5, 1)
    assert reader.news() == {5: 1}


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 100), st.booleans()), max_size=80))
def test_a_reader_misses_nothing_however_often_it_looks(steps: list[tuple[int, int, bool]]) -> None:
    one = part()
    reader = UsageReader(one)
    added: dict[int, float] = defaultdict(float)
    read: dict[int, float] = defaultdict(float)

    def look() -> None:
        for number, amount in reader.news().items():
            read[number] += amount

    for number, amount, looks in steps:
        one.add(number, amount)
        added[number] += amount
        if looks:
            look()
    look()
    assert read == added == one.totals()


def test_meters_have_different_numbers() -> None:
    meters = [
        *((None, "a"), ("a", None), ("a", ""), ("", "a"), ("a", "a"), ("-", None), (None, "-"), ("=a", None)),
    ]
    numbers = {meter_number(key, meter) for key in QuotaKey for meter in meters}
    assert len(numbers) == len(meters) * len(QuotaKey)
    assert 0 not in numbers


def test_a_worker_takes_the_usage_of_its_own_clients_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_page, "KNOWN_MAX", 2)
    shared = page(2)
    one, two = SharedUsage(shared, 0), SharedUsage(shared, 1)
    one.counted(PRODUCER, ALICE, 10)
    one.counted(CONSUMER, APP, 20)
    assert list(two.news()) == []
    two.counted(PRODUCER, ALICE, 1)
    one.counted(PRODUCER, ALICE, 5)
    one.counted(CONSUMER, APP, 5)
    assert list(two.news()) == [(0, PRODUCER, ALICE, 5)]
    two.counted(CONSUMER, ALICE, 1)
    two.counted(CONSUMER, APP, 1)
    one.counted(PRODUCER, ALICE, 5)
    assert list(two.news()) == [], "only some meters are known, and the one unused for longest was forgotten"


def test_a_worker_does_not_read_what_it_counted_itself() -> None:
    shared = page(1)
    one = SharedUsage(shared, 0)
    one.counted(PRODUCER, ALICE, 10)
    assert list(one.news()) == []
    shared.peers[2].add(meter_number(PRODUCER, ALICE), 4)
    assert list(one.news()) == [(2, PRODUCER, ALICE, 4)]


def test_workers_share_memory_in_which_revisions_have_their_own_place() -> None:
    memory = make_page(2)
    one, two = (SharedUsage(open_usage(memory, 2), worker) for worker in range(2))
    two.counted(PRODUCER, ALICE, 1)
    one.counted(PRODUCER, ALICE, 10)
    assert list(two.news()) == [(0, PRODUCER, ALICE, 10)]
    assert len(open_page(memory, 2)) == 4
    assert not any(open_page(memory, 2))
    os.close(memory)


# ---- what each of several processes lets pass


class Processes:
    """Each with its own machine; what they count is read by the others from time to time."""

    def __init__(self, count: int, limit: float, window: Window | None = None) -> None:
        table = QuotaTable()
        table.put(QuotaEntity(user="alice"), PRODUCER, limit)
        shared = page(count)
        self.usage = [SharedUsage(shared, number) for number in range(count)]
        self.machines = [
            ClientQuotas(table, window or Window(), lambda *_: None, one.counted) for one in self.usage
        ]

    def exchange(self, now_ms: int) -> None:
        for machine, usage in zip(self.machines, self.usage, strict=True):
            for news in usage.news():
                machine.other_used(*news, now_ms)

    def produce(self, process: int, size: int, now_ms: int) -> int:
        usage = self.machines[process].begin(user("alice"), "app", 1)
        self.machines[process].produced(usage, size, now_ms)
        return usage.throttle_ms(now_ms)


def test_a_client_of_one_process_has_the_whole_quota() -> None:
    processes = Processes(3, 1_000)
    processes.exchange(0)
    assert processes.produce(0, 10_000, 0) == 0
    assert processes.produce(0, 500, 0) == 500


def test_a_client_of_several_has_what_the_others_leave_and_at_least_an_equal_part() -> None:
    processes = Processes(2, 1_000)
    for process in range(2):
        processes.produce(process, 1, 0)
    processes.produce(0, 2_000, 0)
    processes.exchange(1)
    assert processes.produce(1, 7_900, 1) == 0, "the other one uses 200 of 1,000"
    assert processes.produce(1, 1_000, 1) > 0
    processes.exchange(2)
    assert processes.produce(0, 2_900, 2) == 0, "half of the quota is left to it"
    assert processes.produce(0, 1_000, 2) > 0


def test_a_process_whose_clients_are_throttled_is_not_idle() -> None:
    processes = Processes(2, 1_000)
    for process in range(2):
        processes.produce(process, 1, 0)
        processes.produce(process, 20_000, 0)
    processes.exchange(1)
    assert processes.produce(1, 9_000, 20_000) > 0, "its window is empty, but that of the other one was full"
    assert processes.produce(1, 9_000, 120_000) == 0


@pytest.mark.parametrize(
    ("processes", "connections", "exchange_ms"),
    [(2, 3, 250), (3, 1, 250), (3, 3, 250), (5, 1, 250), (3, 1, 1_000), (3, 3, 1_000)],
)
def test_all_processes_together_have_the_limit(processes: int, connections: int, exchange_ms: int) -> None:
    """Over 66 s, after as long a time: clients that send whenever they may. Their first burst is that of a window."""
    limit, size, used = 200_000, 8_000, 0
    all_of_them = Processes(processes, limit)
    due = {(process, one): 3 * one + process for process in range(processes) for one in range(connections)}
    for now_ms in range(132_000):
        if now_ms % exchange_ms == 0:
            all_of_them.exchange(now_ms)
        for key in [key for key, at_ms in due.items() if at_ms <= now_ms]:
            due[key] = now_ms + max(3, all_of_them.produce(key[0], size, now_ms))
            used += size if now_ms >= 66_000 else 0
    assert used == pytest.approx(66 * limit, rel=0.15)
