"""Reference cycles: objects that only the garbage collector would free."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

TURNS = 50
"""Of the event loop, in which finished tasks and their callbacks go."""


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def cycles() -> Counter[str]:
    """Frees all reference cycles, and counts their objects by type. Use it with the collector off."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    gc.collect()
    return found
