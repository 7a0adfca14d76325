"""Coroutines that run at the same time, on the path of a request."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Their results, when all have ended; or raises the first exception then. If it is cancelled, so are they.

    An asyncio.TaskGroup that is cancelled leaves a reference cycle (Python 3.11 and 3.12), and with it all that the
    request holds until the garbage collector runs.
    """
    results: list[T] = []
    for each in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(each, BaseException):
            raise each
        results.append(each)
    return results
