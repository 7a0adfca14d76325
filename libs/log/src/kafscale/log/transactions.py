"""What batches do to the open transactions of a log: the rule of commits, and of whatever reads batches again. Pure.

A transaction begins in a log with the producer's first transactional batch that no open transaction has, and ends with
the producer's next marker. From the first offset of the oldest open one on the log is unstable. The owner knows of each
batch that it appends what it begins or ends; everything else finds it in the stored batches (`events_in`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kafscale.log.heads import Aborted, OpenTransaction, Seg
from kafscale.log.segment import Buffer, walk_batches
from kafscale.wire.batches import BatchHeader, read_batch_header
from kafscale.wire.markers import Marker, marker_of

UNKNOWN_NUMBER = -1
"""No batch says which of its id's transactions it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A marker at `offset`."""

    producer_id: int
    commit: bool
    offset: int


Event = OpenTransaction | End
"""Begin or end of a transaction."""


class Transactions:
    """The open ones of a log, as far as its events were taken."""

    def __init__(self, begun: Iterable[OpenTransaction] = ()) -> None:
        self._open = {each.producer_id: each for each in begun}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._open

    def of(self, producer_id: int) -> OpenTransaction | None:
        return self._open.get(producer_id)

    @property
    def open(self) -> tuple[OpenTransaction, ...]:
        """In the order of their first offsets."""
        return tuple(self._open.values())

    def stable_end(self, end: int) -> int:
        """The last stable offset of a log that ends at `end`."""
        return next(iter(self._open.values())).first if self._open else end

    def take(self, event: Event) -> Aborted | None:
        """Events come in the order of their offsets. What was aborted, if the event aborts something."""
        if isinstance(event, OpenTransaction):
            self._open.setdefault(event.producer_id, event)
            return None
        begun = self._open.pop(event.producer_id, None)
        if begun is None or event.commit:
            return None
        return Aborted(producer_id=event.producer_id, first=begun.first, last=event.offset)

    def entry(self, seg: Seg, events: Iterable[Event], before: Iterable[Aborted] = ()) -> Seg:
        """The commit record of a segment with these events. It may repeat segments, whose aborts are `before`."""
        ended = [found for found in map(self.take, events) if found is not None]
        unstable = seg.end - self.stable_end(seg.end)
        aborted = (*before, *ended)
        if not aborted and not unstable:
            return seg
        return replace(seg, aborted=aborted, unstable=unstable)


def stored_batches(data: Buffer) -> Iterator[tuple[BatchHeader, Marker | None]]:
    """The headers of a segment's batches, and what those say that end a transaction. Raises SegmentError, WireError."""
    for span in walk_batches(data):
        header = read_batch_header(data, span.position)
        batch = memoryview(data)[span.position : span.position + span.size]
        yield header, marker_of(batch, header) if header.is_control else None


def events_in(batches: Iterable[tuple[BatchHeader, Marker | None]]) -> Iterator[Event]:
    """What these batches begin, if it is not open already, and end."""
    for header, marker in batches:
        if marker is not None:
            yield End(producer_id=header.producer_id, commit=marker.commit, offset=header.base_offset)
        elif header.is_transactional and not header.is_control:
            yield OpenTransaction(
                producer_id=header.producer_id,
                epoch=header.producer_epoch,
                number=UNKNOWN_NUMBER,
                first=header.base_offset,
            )
