"""Settings of the C library's allocator, of gRPC and of Python's garbage collector for a service.

A Dockerfile or a unit file starts a service with MALLOC_ENV; glibc reads it before the first line of Python runs, and
gRPC when it is imported. `kafscale up` forks its services from a process that has imported gRPC. So it sets the
variables before that import, and calls `tune_allocator` in each service. By default glibc maps every object of
128 KiB or more, faults it in page by page, and unmaps it again. With these settings a 1 MiB message costs a third less
CPU.

By default gRPC reads its sockets in threads of its event engine. They hand the bytes to the thread of grpc.aio, which
wakes the event loop. Without the engine, the thread of grpc.aio polls the sockets itself. So a small request costs a
third less CPU at both ends (`docs/performance-history.md`). gRPC calls the switch an experiment: a new version may lack
it, and a test would say so.
"""

import ctypes
import gc
from collections.abc import Mapping
from typing import Final

YOUNG_OBJECTS_MAX: Final = 20_000
"""New objects that start a collection of the youngest generation."""

MALLOC_ENV: Final[Mapping[str, str]] = {
    "MALLOC_MMAP_THRESHOLD_": str(128 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    # The services log a peer that leaves; gRPC would add two lines.
    "GRPC_VERBOSITY": "ERROR",
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}

_MALLOPT: Final[Mapping[str, int]] = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
    "MALLOC_MMAP_THRESHOLD_": -3,
}
"""The parameters of mallopt(3) for the variables."""


def tune_allocator(env: Mapping[str, str]) -> None:
    """Applies the variables of MALLOC_ENV to a process that runs. No-op if the C library has no mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, parameter in _MALLOPT.items():
            if name in env:
                mallopt(parameter, int(env[name]))


def give_back() -> None:
    """Returns freed memory to the system, which glibc would keep with the settings above.

    For use after a flood of requests: it takes milliseconds per 100 MiB. No-op if the C library has no malloc_trim.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def calm_collector() -> None:
    """Call it once, when everything is loaded and before clients come.

    What exists then stays, and requests make no cycles that live long. With the default threshold the collector would
    scan the young objects once for every few requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, 20, 20)
