"""The bound of compare-and-swap loops."""

from __future__ import annotations

import pytest
from kafscale.storage.etcd.swap import TRIES_MAX, TooContended, swapped


async def test_an_attempt_is_repeated_until_its_write_is_made() -> None:
    results = iter([None, None, 7])

    async def attempt() -> int | None:
        return next(results)

    assert await swapped("the record", attempt) == 7


async def test_a_result_that_is_false_is_a_result() -> None:
    async def attempt() -> int | None:
        return 0

    assert await swapped("the record", attempt) == 0


async def test_a_record_that_others_change_each_time_is_given_up() -> None:
    tries = 0

    async def attempt() -> int | None:
        nonlocal tries
        tries += 1
        return None

    with pytest.raises(TooContended, match="the record was changed by others 16 times"):
        await swapped("the record", attempt)
    assert tries == TRIES_MAX
