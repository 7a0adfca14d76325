"""Laws of the simulator about lost objects and records that expire: each breach is one, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from kafscale.storage.objects import ObjectNotFound, PreconditionFailed
from kafscale.storage.system import wall_ms

from e2e.checkers.history import History, Sent
from tools.simulator.clients import Client, Records
from tools.simulator.expiry import COMPACTED, EXPIRING, RETENTION_MS, SKEW_MS, Shortened, Written
from tools.simulator.store import Objects

FIRST, SECOND = Sent("p", 1, 0), Sent("p", 2, 0)


def judged(topic: str, offset: int, age_ms: int, start: int) -> list[str]:
    """What is said of a record when its log begins at `start`."""
    records = Records()
    client = Shortened(cast(Client, None), records, topic)
    client.written[offset] = Written(offset, b"k", b"v", wall_ms() - age_ms)
    client._expired(start)
    return records.broken


def test_a_record_that_is_gone_before_its_time_is_a_broken_law() -> None:
    assert judged(EXPIRING, 3, RETENTION_MS - SKEW_MS - 1_000, 4)
    assert not judged(EXPIRING, 3, RETENTION_MS - SKEW_MS - 1_000, 3)
    assert not judged(EXPIRING, 3, RETENTION_MS - SKEW_MS + 1_000, 4)
    assert judged(COMPACTED, 3, RETENTION_MS, 4)


def test_records_below_a_start_are_excused_and_no_others() -> None:
    history = History(sent=[FIRST, SECOND], acknowledged={FIRST: 4, SECOND: 5})
    history.excuse({0: 5, 1: 9})
    (lost,) = history.violations({0: []})
    assert repr(SECOND.value) in lost


LOSSES: list[tuple[Callable[[Objects], Any], type[Exception] | None]] = [
    (lambda objects: objects.lose("a"), ObjectNotFound),
    (lambda objects: objects.replace("a", b"other"), PreconditionFailed),
    (lambda objects: objects.damage("a", 1), None),
]


@pytest.mark.parametrize(("hurt", "refused"), LOSSES)
def test_an_object_is_hurt_behind_the_back_of_its_readers_and_given_back_as_it_was(
    hurt: Callable[[Objects], Any], refused: type[Exception] | None
) -> None:
    async def story() -> None:
        objects = Objects()
        for key in ("b", "a", "c"):
            await objects.put(key, [b"whole"])
        found = await objects.head("a")
        assert found is not None
        kept = hurt(objects)
        if refused is None:
            assert await objects.get("a", if_match=found.etag) != b"whole"
        else:
            with pytest.raises(refused):
                await objects.get("a", if_match=found.etag)
        objects.give_back(kept)
        assert await objects.get("a", if_match=found.etag) == b"whole"
        assert [info.key async for info in objects.list("")] == ["a", "b", "c"]

    asyncio.run(story())
