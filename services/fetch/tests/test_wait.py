"""The long poll's machine: every answer is given neither too early nor too late."""

from hypothesis import given
from hypothesis import strategies as st
from kafscale.fetch.wait import CATCH_UP_MS, CONFIRMED_MAX_MS, HELD_MIN_MS, Act, FetchWait, Offer, Step

NOW = 10_000


def poll(*, min_bytes: int = 1, max_wait_ms: int = 500) -> FetchWait:
    return FetchWait(min_bytes=min_bytes, max_wait_ms=max_wait_ms, now_ms=NOW)


def test_enough_bytes_or_an_error_end_the_wait_at_once() -> None:
    assert poll(min_bytes=10).step(Offer(ready_bytes=10), NOW).act is Act.ANSWER
    assert poll(min_bytes=10).step(Offer(ready_bytes=0, failed=True), NOW).act is Act.ANSWER


def test_a_full_answer_does_not_wait_for_bytes_that_no_limit_lets_in() -> None:
    assert poll(min_bytes=10).step(Offer(ready_bytes=9, full=True), NOW).act is Act.ANSWER


def test_too_little_is_held_until_the_deadline_and_then_answered() -> None:
    wait = poll(min_bytes=10, max_wait_ms=500)
    assert wait.step(Offer(ready_bytes=9), NOW + 499) == Step(act=Act.HOLD, until_ms=NOW + 500)
    assert wait.step(Offer(ready_bytes=9), NOW + 500).act is Act.ANSWER


def test_an_empty_answer_without_a_wait_asks_etcd_first() -> None:
    for wait in (poll(max_wait_ms=0), poll(min_bytes=0)):
        assert wait.step(Offer(ready_bytes=0, read_ms=NOW - 1, confirmed_ms=NOW), NOW).act is Act.REFRESH
        assert wait.step(Offer(ready_bytes=0, read_ms=NOW, confirmed_ms=NOW), NOW).act is Act.ANSWER


def test_a_held_request_trusts_a_watch_that_was_confirmed_lately() -> None:
    wait = poll(max_wait_ms=500)
    late = NOW + 500
    assert wait.step(Offer(ready_bytes=0, confirmed_ms=late - CONFIRMED_MAX_MS), late).act is Act.ANSWER
    assert wait.step(Offer(ready_bytes=0, confirmed_ms=late - CONFIRMED_MAX_MS - 1), late).act is Act.REFRESH


def test_a_request_held_too_briefly_for_the_watch_asks_etcd() -> None:
    wait = poll(max_wait_ms=HELD_MIN_MS - 1)
    soon = NOW + HELD_MIN_MS - 1
    assert wait.step(Offer(ready_bytes=0, read_ms=NOW - 1, confirmed_ms=soon), soon).act is Act.REFRESH


def test_a_client_that_has_waited_elsewhere_counts_as_held() -> None:
    known = Offer(ready_bytes=0, read_ms=NOW - 1_000, confirmed_ms=NOW - CONFIRMED_MAX_MS)
    assert poll(max_wait_ms=-HELD_MIN_MS).step(known, NOW).act is Act.ANSWER
    assert poll(max_wait_ms=1 - HELD_MIN_MS).step(known, NOW).act is Act.REFRESH
    old = Offer(ready_bytes=0, read_ms=NOW - 1_000, confirmed_ms=NOW - CONFIRMED_MAX_MS - 1)
    assert poll(max_wait_ms=-60_000).step(old, NOW).act is Act.REFRESH
    behind = Offer(ready_bytes=0, behind=True, confirmed_ms=NOW)
    assert poll(max_wait_ms=-60_000).step(behind, NOW).act is Act.REFRESH


def test_a_read_after_the_client_began_to_wait_is_new_enough() -> None:
    wait = poll(max_wait_ms=-20)
    assert wait.step(Offer(ready_bytes=0, read_ms=NOW - 20), NOW).act is Act.ANSWER
    assert wait.step(Offer(ready_bytes=0, read_ms=NOW - 21), NOW).act is Act.REFRESH


def test_a_view_behind_the_demanded_revision_never_answers_empty() -> None:
    wait = poll(max_wait_ms=500)
    behind = Offer(ready_bytes=0, behind=True, confirmed_ms=NOW + 500)
    assert wait.step(behind, NOW) == Step(act=Act.HOLD, until_ms=NOW + CATCH_UP_MS)
    assert wait.step(behind, NOW + CATCH_UP_MS).act is Act.REFRESH
    assert wait.step(behind, NOW + 500).act is Act.REFRESH


def test_a_view_behind_is_good_enough_for_data_that_it_has() -> None:
    assert poll().step(Offer(ready_bytes=1, behind=True), NOW).act is Act.ANSWER


def test_a_drain_answers_what_is_held() -> None:
    wait = poll(max_wait_ms=60_000)
    wait.cut_short(NOW + 200)
    assert wait.step(Offer(ready_bytes=0, confirmed_ms=NOW + 200), NOW + 200).act is Act.ANSWER


@given(
    min_bytes=st.integers(-1, 5),
    max_wait_ms=st.integers(-200, 400),
    looks=st.lists(
        st.tuples(
            st.integers(0, 150), st.integers(0, 5), st.booleans(), st.booleans(), st.integers(-7_000, 0)
        ),
        max_size=8,
    ),
)
def test_whatever_comes_an_empty_answer_is_fresh_and_a_hold_has_an_end(min_bytes, max_wait_ms, looks) -> None:
    wait = FetchWait(min_bytes=min_bytes, max_wait_ms=max_wait_ms, now_ms=NOW)
    now = NOW
    for passed, ready, failed, behind, confirmed in looks:
        now += passed
        times = {"read_ms": now + confirmed, "confirmed_ms": now + confirmed}
        offer = Offer(ready_bytes=ready, failed=failed, behind=behind, **times)
        step = wait.step(offer, now)
        if step.act is Act.HOLD:
            assert now < step.until_ms <= NOW + max_wait_ms
            assert not failed
            assert ready < max(min_bytes, 1)
        elif step.act is Act.REFRESH:
            assert ready == 0
            assert not failed
        elif not ready and not failed:
            assert not behind
            assert confirmed >= -CONFIRMED_MAX_MS
        # What a refresh brings is always enough to go on.
        fresh = Offer(ready_bytes=ready, failed=failed, read_ms=now, confirmed_ms=now)
        assert wait.step(fresh, now).act is not Act.REFRESH
