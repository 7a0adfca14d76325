"""The PUT of a bundle, in virtual time: what is sent again, and when a bundle is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext

import pytest
from kafscale.log.bundle import BuiltBundle, new_bundle_id
from kafscale.produce.log.model import StepDownReason
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.puts import GIVE_UP_MS, BundlePuts, Pace
from kafscale.runtime.metrics import Metrics
from kafscale.storage.keys import META_ATTEMPT, Keyspace
from kafscale.storage.objects import (
    NO_METADATA,
    Buffer,
    Condition,
    MemoryStore,
    Metadata,
    PreconditionFailed,
    StoreSlow,
    StoreUnavailable,
)
from kafscale.testkit.clock import LoopClock, run_in_virtual_time

KEYS = Keyspace("test")
HELD_S = 100.0
SLOW_S = 9.0
"""Less than the time limit of a PUT."""


class Scripted(MemoryStore):
    """Each PUT of a bundle does the next step first."""

    puts_at_once_max: int | None = 48

    def __init__(self, *steps: Callable[[str], Awaitable[None]], always: bool = False) -> None:
        super().__init__()
        self.steps = list(steps)
        self.always = always
        self.puts = 0

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        if key.endswith(".kfb"):
            self.puts += 1
            if self.steps:
                await (self.steps[0] if self.always else self.steps.pop(0))(key)
        return await super().put(key, body, condition=condition, metadata=metadata)


class NoCluster:
    async def metadata(self) -> Mapping[str, str]:
        return {}


async def away(key: str) -> None:
    raise StoreUnavailable(key, "away")


async def slow(key: str) -> None:
    await asyncio.sleep(SLOW_S)
    raise StoreSlow(key, "too slow")


async def conflict(key: str) -> None:
    raise PreconditionFailed(key)


def bundle() -> BuiltBundle:
    return BuiltBundle(id=new_bundle_id(1_700_000_000_000, bytes(10)), body=[b"bytes"], size=5, entries=())


def put(
    store: Scripted, built: BuiltBundle, before: Callable[[Pace], Awaitable[None]] | None = None
) -> tuple[str | StepDownReason, float]:
    """What came of it, and after how many seconds."""

    async def run() -> tuple[str | StepDownReason, float]:
        clock = LoopClock()
        pace = Pace(store, clock, puts_max=1)
        puts = BundlePuts(
            store,
            pace,
            KEYS,
            NoCluster(),
            clock=clock,
            metrics=ProduceMetrics(Metrics("produce")),  # type: ignore[arg-type]
        )
        if before is not None:
            await before(pace)
        begun = asyncio.get_running_loop().time()
        done = await puts.stored(built, nullcontext)
        return done, asyncio.get_running_loop().time() - begun

    return run_in_virtual_time(run())


def test_a_store_that_is_away_ends_it_after_a_minute() -> None:
    outcome, after_s = put(Scripted(away, always=True), bundle())
    assert outcome is StepDownReason.STORE_UNAVAILABLE
    assert GIVE_UP_MS / 1000 <= after_s < GIVE_UP_MS / 1000 + 3


def test_a_wait_for_a_place_is_no_failure() -> None:
    """Two requests fail, each after a wait that was longer than the time for failures."""
    holding: list[asyncio.Task[None]] = []

    async def hold(pace: Pace) -> None:
        async def other(at_s: float) -> None:
            await asyncio.sleep(at_s)
            while True:
                try:
                    async with pace.place(1):
                        return await asyncio.sleep(HELD_S)
                except StoreUnavailable:  # it was turned away with the bundle's request
                    await asyncio.sleep(0)

        holding.extend(asyncio.create_task(other(at_s)) for at_s in (0, 1))
        await asyncio.sleep(0.5)

    store = Scripted(away, away)
    outcome, after_s = put(store, bundle(), hold)
    assert isinstance(outcome, str)
    assert store.puts == 3
    assert after_s >= 2 * HELD_S - 1 > GIVE_UP_MS / 1000


def test_a_put_whose_bytes_moved_is_no_failure() -> None:
    store = Scripted(*[slow] * 10)
    outcome, after_s = put(store, bundle())
    assert isinstance(outcome, str)
    assert after_s >= 10 * SLOW_S > GIVE_UP_MS / 1000


@pytest.mark.parametrize(
    ("there", "outcome"), [(True, "etag"), (None, "etag"), (False, StepDownReason.FOREIGN_OBJECT)]
)
def test_what_is_there_after_a_failed_precondition_decides(
    there: bool | None, outcome: StepDownReason | str
) -> None:
    """Ours; nothing any more, so the PUT is sent again; or another program's."""
    built, store = bundle(), Scripted(conflict)
    key = KEYS.bundle_key(built.id)
    metadata = {META_ATTEMPT: built.id.hex()} if there else NO_METADATA

    async def earlier(_: Pace) -> None:
        if there is not None:
            await MemoryStore.put(store, key, [b"bytes"], metadata=metadata)

    found, _ = put(store, built, earlier)
    if outcome == "etag":
        assert isinstance(found, str)
    else:
        assert found is outcome
