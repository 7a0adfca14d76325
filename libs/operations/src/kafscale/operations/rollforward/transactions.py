"""What a log says of its transactions when their decisions are lost. Pure.

Decisions are only in etcd, so a transaction without a marker in the bucket is aborted: its abort marker goes behind the
end of the log. Commit records that are lost as well say again what their markers abort, and how far they are unstable.

The laws. A commit record that is known stays as it is. From the first one that is not, or from a gap in which a marker
may have been, they are made from the batches. What is open there began at or above the last stable offset of the record
before, so the batches from that offset on show all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kafscale.log.heads import Aborted, OpenTransaction, Seg
from kafscale.log.segment import BatchInfo, build_segment
from kafscale.log.transactions import End, Event, Transactions
from kafscale.operations.rollforward.chain import Chain
from kafscale.operations.rollforward.segments import Filler
from kafscale.wire.batches import patch_batch
from kafscale.wire.markers import Marker, end_marker

NO_COORDINATOR: Final = 0
"""The coordinator epoch of markers that no coordinator has decided. Their producer ids are never used again."""


class Replay:
    """Takes the segments of a log in their order."""

    def __init__(self, chain: Chain, told: Collection[Seg], began: Mapping[tuple[int, int], int]) -> None:
        """`told`: commit records that are known. `began`: what these say of aborted transactions: the first offset by
        producer and marker."""
        self._segs = chain.segs
        self._began = began
        self._start, self._doubt = _bounds(chain, told)
        self._sure = chain.start  # below it records may be gone, and with them what a transaction began with
        self._log = Transactions()

    @property
    def open(self) -> tuple[OpenTransaction, ...]:
        return self._log.open

    def wanted(self, plain: Collection[Seg]) -> Iterator[Seg]:
        """Those whose batches have to be known. `plain`: they have none of a transaction."""
        return (seg for seg in self._segs if seg.end > self._start and seg not in plain)

    def take(self, seg: Seg, events: Iterable[Event]) -> Seg:
        """The commit record of a segment, or of a filler, with these events."""
        if seg.key:  # compaction took records, or nothing is left of them
            self._sure = seg.end
        aborted: list[Aborted] = []
        for event in events:
            if _offset(event) < self._start:
                continue
            found = self._log.take(event) or self._begun_unseen(event)
            if found is not None and isinstance(event, End) and not event.commit:
                aborted.append(found)
        if seg.base < self._doubt:
            return seg
        return replace(seg, aborted=tuple(aborted), unstable=seg.end - self._log.stable_end(seg.end))

    def _begun_unseen(self, event: Event) -> Aborted | None:
        """Its first offset: as known, else the last one that may have been removed."""
        if not isinstance(event, End) or event.commit:
            return None
        first = self._began.get((event.producer_id, event.offset), self._sure - 1)
        return Aborted(producer_id=event.producer_id, first=first, last=event.offset) if first >= 0 else None


def _bounds(chain: Chain, told: Collection[Seg]) -> tuple[int, int]:
    """Where the batches have to be read from, and where the commit records have to be made from."""
    stable = end = chain.start
    for seg in chain.segs:
        if seg not in told or (seg.base > end and stable < end):
            break
        stable, end = seg.end - seg.unstable, seg.end
    return stable, end


def _offset(event: Event) -> int:
    return event.offset if isinstance(event, End) else event.first


def abort_markers(
    begun: Sequence[OpenTransaction], base: int, *, epoch: int, now_ms: int, key: str
) -> Filler:
    """A segment that ends these transactions at the offsets from `base` on. `epoch`: the leader epoch of its batches.
    `key`: a unique name."""
    batches = []
    for offset, each in enumerate(begun, base):
        batch = bytearray(
            end_marker(
                Marker(False, NO_COORDINATOR),
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                timestamp_ms=now_ms,
            )
        )
        patch_batch(batch, offset, epoch)
        batches.append(bytes(batch))
    infos = [BatchInfo(offset, offset, len(batch), 1) for offset, batch in enumerate(batches, base)]
    built = build_segment(base, infos, batches, now_ms)
    ended = [
        Aborted(producer_id=each.producer_id, first=each.first, last=offset)
        for offset, each in enumerate(begun, base)
    ]
    seg = Seg(
        base=base,
        last_delta=len(batches) - 1,
        size=built.size,
        etag="",
        crc32c=built.crc32c,
        index_size=len(built.index),
        index_etag="",
        epoch=epoch,
        min_ts=now_ms,
        max_ts=now_ms,
        records=built.records,
        batches=built.batches,
        created_ms=now_ms,
        key=key,
        aborted=tuple(ended),
    )
    return Filler(seg, built)
