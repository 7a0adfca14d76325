"""Time and bounds: budgets, stalls, and waiting for dependencies that are unavailable."""

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from kafscale.runtime import dependencies
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import CATCH_UP_MS, STALL_MS, TICK_MS, LoopWatch
from kafscale.runtime.dependencies import UNSUITABLE_PROBES, Need, probe_store, wait_for
from kafscale.runtime.loop_watchdog import LOOK_EVERY_MS, STUCK_AFTER_MS, Watchdog
from kafscale.runtime.stream.frame import ReplyStatus, RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.storage.membership.keepalive import LEASE_TTL_S
from kafscale.storage.objects import StoreUnsuitable
from kafscale.storage.objects.memory import MemoryStore
from kafscale.testkit.clock import ManualClock


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=40))
def test_a_budget_never_holds_more_than_its_bytes(steps: list[tuple[bool, int]]) -> None:
    budget = MemoryBudget(100)
    held: list[int] = []
    for reserve, size in steps:
        if reserve and budget.reserve(size):
            held.append(size)
        elif not reserve and held:
            budget.release(held.pop())
        assert budget.used_bytes == sum(held) <= 100


def test_a_share_of_a_budget_refuses_before_the_whole_is_used() -> None:
    budget = MemoryBudget(100)
    assert budget.reserve(25, share=0.25)
    assert not budget.reserve(1, share=0.25)
    assert budget.reserve(75)
    assert not budget.reserve(1)
    assert budget.refusals == 2


def test_what_is_already_held_is_counted_though_it_passes_the_budget() -> None:
    budget = MemoryBudget(100)
    budget.force(150)
    assert (budget.used_bytes, budget.reserve(0)) == (150, False)
    budget.release(150)
    with pytest.raises(AssertionError):
        budget.release(1)


def test_a_process_that_stood_still_says_since_when_while_it_catches_up() -> None:
    clock = ManualClock(now_ms=1000)
    watch = LoopWatch(clock)
    for _ in range(3):
        clock.advance(TICK_MS)
        watch.tick()
    assert watch.stalled_since_ms(clock.now_ms()) is None
    stopped_ms = clock.now_ms()
    clock.advance(STALL_MS + 1)
    assert watch.stalled_since_ms(clock.now_ms()) == stopped_ms
    watch.tick()
    assert watch.stalls == 1
    assert watch.stalled_since_ms(clock.now_ms()) == stopped_ms
    for _ in range(CATCH_UP_MS // TICK_MS + 1):
        clock.advance(TICK_MS)
        watch.tick()
    assert watch.stalled_since_ms(clock.now_ms()) is None


def test_the_worst_lag_is_kept_until_it_is_read() -> None:
    clock = ManualClock()
    watch = LoopWatch(clock)
    for gap_ms in (TICK_MS, TICK_MS + 70, TICK_MS):
        clock.advance(gap_ms)
        watch.tick()
    assert watch.take_lag_max_ms() == 70
    assert watch.take_lag_max_ms() == 0


def looks_until_stuck(watchdog: Watchdog, clock: ManualClock, gap_ms: int, looks_max: int) -> int | None:
    for number in range(1, looks_max + 1):
        clock.advance(gap_ms)
        if watchdog.is_stuck():
            return number
    return None


def test_a_loop_that_does_not_turn_for_longer_than_a_lease_lives_is_stuck() -> None:
    clock = ManualClock(now_ms=1000)
    watchdog = Watchdog(LoopWatch(clock), clock)
    looks = looks_until_stuck(watchdog, clock, LOOK_EVERY_MS, 100)
    assert looks is not None
    assert looks * LOOK_EVERY_MS > STUCK_AFTER_MS > 1000 * LEASE_TTL_S


def test_a_loop_that_turns_now_and_then_is_not_stuck() -> None:
    clock = ManualClock(now_ms=1000)
    watch = LoopWatch(clock)
    watchdog = Watchdog(watch, clock)
    for _ in range(5):
        assert looks_until_stuck(watchdog, clock, LOOK_EVERY_MS, STUCK_AFTER_MS // LOOK_EVERY_MS - 1) is None
        watch.tick()


def test_time_in_which_the_process_was_suspended_does_not_make_it_stuck() -> None:
    clock = ManualClock(now_ms=1000)
    watch = LoopWatch(clock)
    watchdog = Watchdog(watch, clock)
    assert looks_until_stuck(watchdog, clock, 100 * STUCK_AFTER_MS, 1) is None
    assert looks_until_stuck(watchdog, clock, LOOK_EVERY_MS, STUCK_AFTER_MS // LOOK_EVERY_MS - 3) is None
    watch.tick()
    assert not watchdog.is_stuck()


class NoSink:
    def answer(self, *_anything: object) -> None:
        raise AssertionError("nothing is answered here")


@given(st.integers(0, 1000), st.integers(0, 2000))
def test_a_request_expires_when_its_age_reaches_its_budget(budget_ms: int, age_ms: int) -> None:
    meta = RequestMeta(connection_id=1, api_key=0, api_version=0, age_budget_ms=budget_ms)
    request = InboundRequest(meta, memoryview(b""), arrived_ms=50, sink=NoSink())
    assert request.expired(50 + age_ms) == (0 < budget_ms <= age_ms)


def test_a_cancelled_request_calls_back_once_and_its_reply_goes_nowhere() -> None:
    meta = RequestMeta(connection_id=1, api_key=0, api_version=0)
    request = InboundRequest(meta, memoryview(b""), arrived_ms=0, sink=NoSink())
    called: list[str] = []
    request.on_cancel(lambda: called.append("before"))
    for callback in request.cancel():
        callback()
    assert request.cancel() == ()
    request.on_cancel(lambda: called.append("after"))
    assert called == ["before", "after"]
    request.reply((b"late",), status=ReplyStatus.FINAL)
    with pytest.raises(AssertionError):
        request.reply((b"twice",))


class NotYet(Exception):
    pass


async def test_waiting_says_so_once_per_reason_and_says_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "RETRY_FIRST_MS", 1)
    monkeypatch.setattr(dependencies, "RETRY_CAP_MS", 2)
    clock = ManualClock()
    tries = 0
    told: list[str] = []

    async def probe() -> str:
        nonlocal tries
        tries += 1
        clock.advance(100)
        if tries < 5:
            raise NotYet("nobody listens")
        if tries < 8:
            raise ConnectionError("refused")
        return "here"

    need = Need(what="etcd", remedy="start it", probe=probe, not_yet=(NotYet, ConnectionError))
    with structlog.testing.capture_logs() as logs:
        assert await wait_for(need, clock=clock, say=told.append) == "here"
    assert [(line["event"], line.get("why")) for line in logs] == [
        ("dependency unavailable", "nobody listens"),
        ("dependency unavailable", "refused"),
        ("dependency available", None),
    ]
    assert [line["waited_ms"] for line in logs] == [100, 500, 800]
    assert logs[0]["do"] == "start it"
    assert len(told) == 7


async def test_waiting_reminds_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "RETRY_FIRST_MS", 1)
    monkeypatch.setattr(dependencies, "RETRY_CAP_MS", 1)
    clock = ManualClock()
    tries = 0

    async def probe() -> None:
        nonlocal tries
        tries += 1
        clock.advance(20_000)
        if tries < 7:
            raise NotYet("no")

    with structlog.testing.capture_logs() as logs:
        await wait_for(
            Need(what="x", remedy="y", probe=probe, not_yet=(NotYet,)), clock=clock, say=lambda _text: None
        )
    assert [line["waited_ms"] for line in logs] == [20_000, 80_000, 140_000]


class Young(MemoryStore):
    """A store whose first probes find that it does not keep its conditions."""

    def __init__(self, unsuitable: int) -> None:
        super().__init__()
        self.unsuitable = unsuitable
        self.probes = 0

    async def probe(self) -> None:
        self.probes += 1
        if self.probes <= self.unsuitable:
            raise StoreUnsuitable("probe", "2 of 2 concurrent PUTs succeeded")


async def test_a_store_that_has_just_started_is_probed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "UNSUITABLE_PAUSE_S", 0.001)
    young = Young(UNSUITABLE_PROBES - 1)
    await probe_store(young)
    assert young.probes == UNSUITABLE_PROBES
    unsuitable = Young(UNSUITABLE_PROBES)
    with pytest.raises(StoreUnsuitable):
        await probe_store(unsuitable)
    assert unsuitable.probes == UNSUITABLE_PROBES
