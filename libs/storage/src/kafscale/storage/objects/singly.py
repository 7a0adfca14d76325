"""Deletes objects one by one with `delete`, and returns the result or exception of each."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kafscale.storage.objects.errors import StoreError
from kafscale.storage.objects.port import Doomed, Outcome

AT_ONCE: Final = 16

Delete = Callable[[str, str | None], Awaitable[bool]]
"""Deletes a key, if it has this etag."""


async def delete_singly(delete: Delete, doomed: Sequence[Doomed]) -> list[Outcome]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(each: Doomed) -> Outcome:
        async with slots:
            try:
                return await delete(each.key, each.etag)
            except StoreError as error:
                return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(each)) for each in doomed]
    return [task.result() for task in tasks]
