"""The environment that a service is to be started with, by `kafscale up`, a Dockerfile, or a unit file.

By default glibc maps every object of 128 KiB or more, faults it in page by page, and unmaps it again;
with these a 1 MiB message costs a third less CPU. glibc reads them before the first line of Python runs.
"""

import ctypes
from collections.abc import Mapping
from typing import Final

MALLOC_ENV: Final[Mapping[str, str]] = {
    "MALLOC_MMAP_THRESHOLD_": str(128 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
    # A peer that leaves is worth a line of ours, not two of gRPC's.
    "GRPC_VERBOSITY": "ERROR",
}


def give_back() -> None:
    """What the process has freed goes back to the system, which glibc would keep with the settings above.

    For after a flood: it takes milliseconds for each hundred MiB. Nothing where the C library has no such call.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
