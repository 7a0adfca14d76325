"""Rates of new connections: which begin later, which are closed, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.quota import Default, QuotaEntity, QuotaKey, QuotaTable
from kafscale.access.quota_rates import Window
from kafscale.frontdoor.listeners.listeners import ListenersWrong
from kafscale.frontdoor.quotas.connection_rates import (
    AT_ONCE,
    WAIT_MS_MAX,
    ConnectionRates,
    Verdict,
    read_rates,
)
from kafscale.frontdoor.settings import FrontdoorSettings
from pydantic import ValidationError

IN, OUT = "IN", "OUT"
HERE, THERE = "10.0.0.1", "10.0.0.2"


def rates(text: str = "", table: QuotaTable | None = None) -> ConnectionRates:
    return ConnectionRates(read_rates(text, (IN, OUT)), table or QuotaTable(), Window())


def test_the_setting_has_a_rate_for_the_process_and_for_listeners() -> None:
    assert read_rates("", (IN, OUT)) == {}
    assert read_rates("200", (IN, OUT)) == {None: 200}
    assert read_rates(" 200, out=50 ,IN=7", (IN, OUT)) == {None: 200, OUT: 50, IN: 7}


@pytest.mark.parametrize("text", ["0", "-1", "many", "OTHER=5", "1.5", "5,OUT=", "OUT=1,OUT=2"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ListenersWrong, match="KAFSCALE_MAX_CONNECTION_CREATION_RATE"):
        read_rates(text, (IN, OUT))
    with pytest.raises(ValidationError):
        FrontdoorSettings(listeners="IN://:1,OUT://:2", max_connection_creation_rate=text)


def test_without_a_rate_nothing_is_limited() -> None:
    one = rates()
    assert not one.limits
    assert {one.arrived(IN, HERE, 0) for _ in range(1_000)} == {AT_ONCE}


def test_connections_beyond_the_rate_begin_later_one_after_the_other() -> None:
    one = rates("10")
    assert one.limits
    assert {one.arrived(IN, HERE, 0) for _ in range(100)} == {AT_ONCE}, "the burst of a window"
    waits = [one.arrived(IN, THERE, 0).wait_ms for _ in range(5)]
    assert waits == sorted(set(waits))
    assert waits[0] == 100
    assert waits[-1] >= 500


def test_a_listener_has_its_rate_and_the_others_that_of_the_process() -> None:
    one = rates("1000,OUT=1")
    assert {one.arrived(OUT, HERE, 0) for _ in range(10)} == {AT_ONCE}
    assert one.arrived(OUT, HERE, 0).wait_ms == 1_000
    assert one.arrived(IN, HERE, 0) == AT_ONCE


def test_who_would_wait_too_long_is_closed_at_once() -> None:
    one = rates("1")
    verdicts = [one.arrived(IN, HERE, 0) for _ in range(100)]
    assert verdicts[-1] == Verdict(wait_ms=0, closes=True)
    assert all(verdict.wait_ms <= WAIT_MS_MAX for verdict in verdicts)
    assert not one.arrived(IN, HERE, 60_000).closes, "those that were closed do not count"


def test_an_address_beyond_its_rate_is_held_and_closed_and_others_are_not() -> None:
    table = QuotaTable()
    table.put(QuotaEntity(ip=HERE), QuotaKey.CONNECTION_CREATION_RATE, 2)
    one = rates(table=table)
    assert one.limits
    assert {one.arrived(IN, HERE, 0) for _ in range(20)} == {AT_ONCE}
    assert one.arrived(IN, HERE, 0) == Verdict(wait_ms=500, closes=True)
    assert one.arrived(IN, HERE, 0) == Verdict(wait_ms=500, closes=True), "it does not count"
    assert one.arrived(IN, THERE, 0) == AT_ONCE
    table.put(QuotaEntity(ip=Default.DEFAULT), QuotaKey.CONNECTION_CREATION_RATE, 1)
    assert [one.arrived(IN, THERE, 0).closes for _ in range(11)] == [False] * 10 + [True]
    table.put(QuotaEntity(ip=HERE), QuotaKey.CONNECTION_CREATION_RATE, None)
    table.put(QuotaEntity(ip=Default.DEFAULT), QuotaKey.CONNECTION_CREATION_RATE, None)
    assert not one.limits
    assert one.arrived(IN, HERE, 0) == AT_ONCE


def test_an_address_of_ipv6_is_found_however_it_was_written() -> None:
    table = QuotaTable()
    table.put(QuotaEntity(ip="2001:0db8:0::0007"), QuotaKey.CONNECTION_CREATION_RATE, 1)
    one = rates(table=table)
    assert [one.arrived(IN, "2001:db8::7", 0).closes for _ in range(11)] == [False] * 10 + [True]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=150), st.integers(1, 20))
def test_never_more_begin_than_the_burst_and_the_rate(pauses: list[int], limit: int) -> None:
    one, now_ms, begins = rates(str(limit)), 0, []
    for pause_ms in pauses:
        now_ms += pause_ms
        verdict = one.arrived(IN, HERE, now_ms)
        if not verdict.closes:
            begins.append(now_ms + verdict.wait_ms)
    assert begins == sorted(begins)
    for first in range(len(begins)):
        for last in range(first, len(begins)):
            window_s = (begins[last] - begins[first]) / 1_000
            assert last - first + 1 <= limit * (12 + window_s) * 1.1 + 1
