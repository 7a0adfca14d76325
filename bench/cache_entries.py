"""What it costs to make and to check entries of the shared cache, with a checksum and with a key.

    python -m bench.cache_entries            (starts nothing)

CPU time on one core, the best of many runs. "Made" is a segment in the parts that a produce service has.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from kafscale.runtime.shared_cache.entries import CheckedEntries, Entries, ObjectName
from kafscale.runtime.shared_cache.signed_entries import PIECE_BYTES, SignedEntries

RUNS = 50
SEGMENT_BYTES = 4 << 20
PARTS = 40
NAME = ObjectName("default/orders/0/segment-00000000000000000000.kfs", "d41d8cd98f00b204e9800998ecf8427e")


def best_ms(work: Callable[[], object]) -> float:
    took_ns = []
    for _ in range(RUNS):
        before_ns = time.process_time_ns()
        assert work() is not None
        took_ns.append(time.process_time_ns() - before_ns)
    return min(took_ns) / 1e6


def measure(what: str, entries: Entries) -> None:
    part = os.urandom(-(-SEGMENT_BYTES // PARTS))
    parts = [part] * PARTS
    size = len(part) * PARTS
    segment, bundle = (entries.sealed(NAME, parts, in_ranges=each) for each in (False, True))
    end = PIECE_BYTES - 1_000
    first, last = entries.extent(0, end)
    found = bundle[first:last]
    figures = {
        "segment made": best_ms(lambda: entries.sealed(NAME, parts, in_ranges=False)),
        "bundle made": best_ms(lambda: entries.sealed(NAME, parts, in_ranges=True)),
        "segment checked": best_ms(lambda: entries.opened(NAME, segment, size)),
        "64 KiB of a bundle checked": best_ms(lambda: entries.opened_range(NAME, found, 0, end)),
    }
    for name, took_ms in figures.items():
        sys.stdout.write(f"{what:9} {name:27} {took_ms:7.3f} ms\n")


def main() -> None:
    measure("checksum", CheckedEntries())
    measure("key", SignedEntries([bytes(range(32))]))


if __name__ == "__main__":
    main()
