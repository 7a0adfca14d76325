"""Ranges and events that cross, in every order: a view never goes back, and is complete when it says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.etcd.client import (
    EtcdUnknown,
    EventKind,
    KeyValue,
    RangeResult,
    UnknownKind,
    WatchBatch,
    WatchEvent,
)
from kafscale.storage.views import PrefixView


def text(kv: KeyValue) -> str | None:
    return None if kv.value == b"skip" else kv.value.decode()


class Script:
    """A fake etcd that answers ranges on request, so that answers and events cross."""

    def __init__(self) -> None:
        self.ranges: asyncio.Queue[asyncio.Future[RangeResult]] = asyncio.Queue()

    async def prefix(self, prefix: bytes) -> RangeResult:
        answer: asyncio.Future[RangeResult] = asyncio.get_running_loop().create_future()
        self.ranges.put_nowait(answer)
        return await answer


def kv(key: bytes, revision: int, value: bytes = b"v") -> KeyValue:
    return KeyValue(key, value, revision, revision, 1, 0)


def found(revision: int, *kvs: KeyValue) -> RangeResult:
    return RangeResult(kvs, revision)


def batch(*events: tuple[EventKind, KeyValue]) -> WatchBatch:
    return WatchBatch(tuple(WatchEvent(kind, kv) for kind, kv in events), events[-1][1].mod_revision)


PUT, DELETE = EventKind.PUT, EventKind.DELETE


@asynccontextmanager
async def refreshing(
    view: PrefixView[str], script: Script
) -> AsyncIterator[Callable[[RangeResult], Awaitable[None]]]:
    """A refresh is under way inside; call what is given to answer it."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(view.refresh())
        pending = await script.ranges.get()

        async def finish(result: RangeResult) -> None:
            pending.set_result(result)
            await task

        yield finish


async def test_a_range_older_than_the_watch_neither_revives_nor_reverts() -> None:
    script = Script()
    view = PrefixView(script, b"k", text)  # type: ignore[arg-type]
    view._apply(batch((PUT, kv(b"ka", 5)), (PUT, kv(b"kb", 6, b"old"))))
    async with refreshing(view, script) as finish:
        view._apply(batch((DELETE, kv(b"ka", 8)), (PUT, kv(b"kb", 9, b"new")), (PUT, kv(b"kc", 10))))
        await finish(found(7, kv(b"ka", 5), kv(b"kb", 6, b"old")))
    assert dict(view.items) == {b"kb": "new", b"kc": "v"}
    assert view.revision == 10


async def test_an_event_older_than_the_range_changes_nothing() -> None:
    script = Script()
    view = PrefixView(script, b"k", text)  # type: ignore[arg-type]
    async with refreshing(view, script) as finish:
        await finish(found(10, kv(b"ka", 9, b"new")))
    view._apply(batch((PUT, kv(b"ka", 4, b"old")), (DELETE, kv(b"ka", 5))))
    assert dict(view.items) == {b"ka": "new"}
    assert view.revision == 10


async def test_of_two_ranges_that_cross_the_later_one_counts() -> None:
    """ka was put at 1 and deleted at 3; the watch has reported neither."""
    crossing = Crossing([(b"ka", True), (b"kb", True), (b"ka", False)])
    crossing.written = 2
    crossing.begin(None)
    crossing.written = 3
    crossing.begin(None)
    crossing.end(1)
    crossing.end(0)
    assert dict(crossing.view.items) == {b"kb": "2"}


async def test_callers_during_a_refresh_share_the_next_one() -> None:
    """A range that began before the caller came may lack what the caller must see."""
    script = Script()
    view = PrefixView(script, b"k", text)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        first = group.create_task(view.refresh())
        answer = await script.ranges.get()
        late = [group.create_task(view.refresh()) for _ in range(5)]
        answer.set_result(found(10))
        await first
        second = await script.ranges.get()
        assert not any(task.done() for task in late)
        second.set_result(found(11, kv(b"ka", 11)))
        await asyncio.wait(late)
    assert script.ranges.empty(), "five callers, one range"
    assert dict(view.items) == {b"ka": "v"}


async def test_a_refresh_that_fails_fails_its_caller_and_the_next_caller_tries_again() -> None:
    script = Script()
    view = PrefixView(script, b"k", text)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        first = asyncio.gather(view.refresh(), return_exceptions=True)
        answer = await script.ranges.get()
        late = group.create_task(view.refresh())
        answer.set_exception(EtcdUnknown(UnknownKind.TIMEOUT, "late"))
        (failure,) = await first
        assert isinstance(failure, EtcdUnknown)
        (await script.ranges.get()).set_result(found(3))
        await late


async def test_etcd_restored_from_a_backup_takes_the_view_back() -> None:
    script = Script()
    view = PrefixView(script, b"k", text)  # type: ignore[arg-type]
    view._apply(batch((PUT, kv(b"ka", 50, b"lost")), (PUT, kv(b"kb", 60, b"lost"))))
    async with refreshing(view, script) as finish:
        await finish(found(40, kv(b"ka", 30, b"restored")))
    assert dict(view.items) == {b"ka": "restored"}
    assert view.revision == 40
    view._apply(batch((PUT, kv(b"ka", 41, b"goes on"))))
    assert dict(view.items) == {b"ka": "goes on"}


KEYS = (b"ka", b"kb", b"kc")
histories = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=20)


class Crossing:
    """etcd's history, a watch that lags behind it, and ranges whose answers come late."""

    def __init__(self, history: list[tuple[bytes, bool]]) -> None:
        self.history = history  # event n has revision n + 1 and puts its revision, or deletes
        self.written = 0
        self.watched = 0
        self.ranges: list[tuple[int, tuple[bytes, ...] | None]] = []
        self.view: PrefixView[str] = PrefixView(Script(), b"k", text)  # type: ignore[arg-type]
        self.shown = dict.fromkeys(KEYS, 0)

    def truth(self, revision: int) -> dict[bytes, int]:
        state: dict[bytes, int] = {}
        for number, (key, is_put) in enumerate(self.history[:revision], 1):
            state.pop(key, None)
            if is_put:
                state[key] = number
        return state

    def moves(self) -> list[str]:
        can_write = self.written < len(self.history)
        moves = ["begin", "begin keys"] if can_write and len(self.ranges) < 3 else []
        moves += ["write"] if can_write else []
        moves += ["watch"] if self.watched < self.written else []
        moves += ["end"] if self.ranges else []
        return moves

    def watch(self) -> None:
        key, is_put = self.history[self.watched]
        self.watched += 1
        kind = PUT if is_put else DELETE
        self.view._apply(batch((kind, kv(key, self.watched, b"%d" % self.watched))))

    def begin(self, asked: tuple[bytes, ...] | None) -> None:
        self.view._reading += 1
        self.ranges.append((self.written, asked))

    def end(self, which: int) -> None:
        revision, asked = self.ranges.pop(which)
        held = [kv(k, r, b"%d" % r) for k, r in self.truth(revision).items() if asked is None or k in asked]
        self.view._merge(held, asked, revision)
        self.view._read_ended()
        if asked is None:
            self.view._advance(revision)

    def check(self) -> None:
        for key in KEYS:
            at = int(self.view.items.get(key, "0"))
            assert at == 0 or at >= self.shown[key], "an older value came back"
            self.shown[key] = max(self.shown[key], at)
            last_change = max(
                (n for n, (k, _) in enumerate(self.history[: self.written], 1) if k == key), default=0
            )
            if self.view.revision >= last_change:
                assert at == self.truth(self.written).get(key, 0), "the view says that it is complete"


@given(histories, st.data())
def test_events_and_ranges_in_any_interleaving_never_take_the_view_back(
    history: list[tuple[bytes, bool]], data: st.DataObject
) -> None:
    crossing = Crossing(history)
    while moves := crossing.moves():
        match data.draw(st.sampled_from(moves)):
            case "write":
                crossing.written += 1
            case "watch":
                crossing.watch()
            case "begin":
                crossing.begin(None)
            case "begin keys":
                crossing.begin(data.draw(st.sampled_from([KEYS[:1], KEYS[:2], KEYS[2:]])))
            case "end":
                crossing.end(data.draw(st.integers(0, len(crossing.ranges) - 1)))
        crossing.check()
    assert {k: int(v) for k, v in crossing.view.items.items()} == crossing.truth(len(history))
