"""The flush policy by itself: when an open buffer is due, and when it may be sealed."""

from __future__ import annotations

import pytest
from kafscale.produce.log.flush import NEVER, FlushLimits, FlushPolicy

LIMITS = FlushLimits(linger_min_ms=5, flush_interval_ms=250, budget_linger_max_ms=5_000)


def policy(limits: FlushLimits = LIMITS, *, opened_ms: int | None = 1_000) -> FlushPolicy:
    flush = FlushPolicy(limits)
    if opened_ms is not None:
        flush.opened(opened_ms)
    return flush


def test_an_empty_buffer_is_never_due() -> None:
    assert policy(opened_ms=None).due_ms(0, 0, under_way=False) == NEVER
    sealed = policy()
    sealed.sealed(1_005)
    assert sealed.due_ms(0, 1, under_way=True) == NEVER


@pytest.mark.parametrize(("size", "full"), [(99, False), (100, True), (101, True)])
def test_a_buffer_is_full_at_the_smaller_of_two_sizes(size: int, full: bool) -> None:
    assert policy(FlushLimits(segment_bytes=100, seal_bytes_max=200)).is_full(size) is full
    assert policy(FlushLimits(segment_bytes=200, seal_bytes_max=100)).is_full(size) is full


def test_an_idle_partition_lingers_and_a_busy_one_gathers_for_the_interval() -> None:
    assert policy().due_ms(1, 0, under_way=False) == 1_005
    assert policy().due_ms(1, 1, under_way=True) == 1_250


def test_a_full_pipeline_is_waited_out_however_late_it_is() -> None:
    assert policy().due_ms(1, LIMITS.pipeline_max - 1, under_way=True) == 1_250
    assert policy().due_ms(1, LIMITS.pipeline_max, under_way=True) == NEVER


def test_after_a_commit_the_buffer_waits_for_the_acknowledged_producers_half_as_long_as_the_commit_took() -> (
    None
):
    flush = policy(opened_ms=900)
    flush.sealed(1_000)
    flush.acknowledged(returning=2, waiting=1, now_ms=1_100)
    flush.opened(1_110)
    assert flush.due_ms(2, 0, under_way=False) == 1_150, "one is not back"
    assert flush.due_ms(3, 0, under_way=False) == 1_110, "all are"
    flush.configure(FlushLimits(linger_min_ms=70, linger_whole=True))
    assert flush.due_ms(3, 0, under_way=False) == 1_180, "the topic's linger is waited out all the same"


def test_with_a_budget_a_due_buffer_asks_once_and_is_sealed_with_the_grant() -> None:
    flush = policy(FlushLimits(budgeted=True))
    assert not flush.may_seal(1_005)
    assert [flush.asks(), flush.asks()] == [True, False]
    assert flush.due_ms(1, 0, under_way=False) == 6_000, "the longest linger, without a grant"
    flush.granted()
    assert flush.due_ms(1, 0, under_way=False) == 1_005
    assert flush.may_seal(1_006)
    flush.sealed(1_006)
    flush.opened(1_010)
    assert not flush.may_seal(1_015), "a grant is for one buffer"


def test_without_a_grant_the_longest_linger_seals() -> None:
    flush = policy(FlushLimits(budgeted=True))
    assert not flush.may_seal(5_999)
    assert flush.may_seal(6_000)


def test_without_a_budget_a_due_buffer_may_be_sealed() -> None:
    assert policy().may_seal(1_000)


@pytest.mark.parametrize(
    ("whole", "under_way", "hold_ms"),
    [(True, False, 90), (True, True, 250), (False, False, 0), (False, True, 250)],
)
def test_a_buffer_is_kept_out_of_bundles_by_its_topics_linger_and_by_its_own_flights(
    whole: bool, under_way: bool, hold_ms: int
) -> None:
    policy = FlushPolicy(FlushLimits(linger_min_ms=90, linger_whole=whole))
    assert policy.hold_ms(under_way=under_way) == hold_ms
