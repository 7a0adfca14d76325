"""The time that a checkpoint's producer snapshot takes on the event loop of a produce service.

    python bench/producer_snapshot.py [--ids 1000 10000 100000] [--changed 500]

Prints the CPU time of a whole snapshot and of its longest piece, for which all other requests wait. It measures the
first snapshot after a claim, and a snapshot after some of the producers sent a batch.
"""

from __future__ import annotations

import argparse
import gc
import time

from kafscale.produce.log.producers import ProducerBounds, ProducerTable

WALL_MS = 1_790_000_000_000


def table_of(count: int) -> ProducerTable:
    table = ProducerTable(ProducerBounds(ids_max=count))
    for base in range(count):
        record(table, base, 0, base)
    return table


def record(table: ProducerTable, producer_id: int, sequence: int, base: int) -> None:
    table.record(
        producer_id, 0, sequence, sequence, base, WALL_MS, wall_ms=WALL_MS + base, committed=base + 1
    )


def snapshot(table: ProducerTable, below: int) -> tuple[int, list[float]]:
    """The snapshot's bytes, and the seconds of each piece."""
    pieces = []
    began_s = time.thread_time()
    work = table.begin_snapshot(below, WALL_MS)
    for _ in work.steps():
        pieces.append(time.thread_time() - began_s)
        began_s = time.thread_time()
    data = work.data() or b""
    table.forget(work)
    pieces.append(time.thread_time() - began_s)
    return len(data), pieces


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ids", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--changed", type=int, default=500)
    args = parser.parse_args()
    gc.freeze()
    for count in args.ids:
        table = table_of(count)
        report(count, "first after a claim", *snapshot(table, count))
        for number in range(args.changed):
            record(table, number, 1, count + number)
        report(count, f"{args.changed} sent since", *snapshot(table, count + args.changed))


def report(count: int, what: str, size: int, pieces: list[float]) -> None:
    print(
        f"{count:>9,} producers, {what:<20} {size / 1e6:6.2f} MB, {sum(pieces) * 1e3:8.1f} ms of CPU in "
        f"{len(pieces)} pieces, the longest {max(pieces) * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
