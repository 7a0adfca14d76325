"""glibc's allocator for processes that pass megabytes: set in the environment before they start.

By default every object of 128 KiB or more is mapped, faulted in page by page, and unmapped again;
with these a 1 MiB message costs a third less CPU. They must be set by whoever starts the process
(`kafscale up`, a Dockerfile): glibc reads them before the first line of Python runs.
"""

from collections.abc import Mapping
from typing import Final

MALLOC_ENV: Final[Mapping[str, str]] = {
    "MALLOC_MMAP_THRESHOLD_": str(128 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(16 << 20),
}
