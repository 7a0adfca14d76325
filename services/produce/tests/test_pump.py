"""The pump: partitions are driven together, and a drive that raises is not passed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from kafscale.produce.log.model import Instant
from kafscale.produce.partition import Partition
from kafscale.produce.pump import Pump
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.logs import CURRENT_REQUEST
from kafscale.runtime.stream.frame import RequestMeta


class Bug(Exception):
    """Ours."""


def doing(what: Callable[[], object]) -> Partition:
    class Driven:
        def drive(self, _now: Instant) -> None:
            what()

    return cast(Any, Driven())


def raises() -> None:
    raise Bug


async def test_partitions_touched_in_one_turn_are_driven_once_each_in_their_order() -> None:
    pump = Pump(SystemClock())
    driven: list[str] = []
    one, other = (doing(lambda name=name: driven.append(name)) for name in ("one", "other"))
    for partition in (one, other, one):
        pump.touch(partition)
    await asyncio.sleep(0)
    assert driven == ["one", "other"]


async def test_a_drive_that_raises_ends_the_instance_and_nothing_is_driven_after_it() -> None:
    """Its actions are lost, and so would be the partitions behind it: they would stand still for good."""
    pump = Pump(SystemClock())
    driven: list[str] = []
    running = asyncio.create_task(pump.run())
    for partition in (doing(raises), doing(lambda: driven.append("behind"))):
        pump.touch(partition)
    with pytest.raises(Bug):
        await running
    assert pump.stopped
    pump.touch(doing(lambda: driven.append("later")))
    await asyncio.sleep(0)
    assert driven == []


async def test_what_a_drive_begins_bears_the_ids_of_no_request() -> None:
    """A drive serves everybody who touched its partition, and timers and uploads begin in it."""
    pump = Pump(SystemClock())
    seen: list[RequestMeta | None] = []
    token = CURRENT_REQUEST.set(RequestMeta(connection_id=1, api_key=0, api_version=9))
    pump.touch(doing(lambda: seen.append(CURRENT_REQUEST.get())))
    CURRENT_REQUEST.reset(token)
    await asyncio.sleep(0)
    assert seen == [None]
