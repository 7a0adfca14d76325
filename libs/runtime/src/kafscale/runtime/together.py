"""Coroutines that run at the same time, on the path of a request."""

import asyncio
from collections.abc import Coroutine, Iterable


async def together(work: Iterable[Coroutine[object, object, None]]) -> None:
    """Ends when all have ended, then raises the first exception. If it is cancelled, so are they.

    An asyncio.TaskGroup that is cancelled leaves a reference cycle (Python 3.11 and 3.12), and with it all that the
    request holds until the garbage collector runs.
    """
    for failure in await asyncio.gather(*work, return_exceptions=True):
        if failure is not None:
            raise failure
