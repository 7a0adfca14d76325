"""Python's cyclic collector, told what a service is like: what exists when it is ready stays, and requests make no
cycles that live. With the default threshold it looks through young objects once for every few requests.
"""

import gc
from typing import Final

YOUNG_OBJECTS_MAX: Final = 20_000


def calm_collector() -> None:
    """When everything is loaded, and before clients come."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, 20, 20)
