"""What a reader of committed data (isolation level read_committed, KIP-98) sees of a log. Pure.

It stops at the last stable offset. Below it, it passes over markers and over what was aborted: a batch of an aborted
transaction's producer between the transaction's first offset and its marker. The segment with the marker lists the
transaction. A transaction that ends later than some segment was open when the log ended there, so it begins at or above
that segment's stable offset: a search may stop at the first segment with a stable offset that is past the range.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafscale.log.heads import Aborted, Seg
from kafscale.log.state import LogState


def visible_end(state: LogState, *, committed_only: bool) -> int:
    """The offset at which a reader stops: the last stable offset, or the high watermark."""
    return state.lso if committed_only else state.next


def aborted_in(segs: Iterable[Seg]) -> tuple[Aborted, ...]:
    """The aborted transactions whose markers are in these segments, in their order."""
    return tuple(aborted for seg in segs for aborted in seg.aborted)


class AbortedSearch:
    """The aborted transactions that have batches or markers in offsets [first, end), which are stable. It takes the
    segments of a log in their order, from the one that holds `first` on, until it is done.

    A transaction with its marker below `first` is not found: a consumer that was told of it would hide later records of
    the producer.
    """

    __slots__ = ("_end", "_first", "_found", "done")

    def __init__(self, first: int, end: int) -> None:
        self._first = first
        self._end = end
        self._found: list[Aborted] = []
        self.done = first >= end

    def take(self, seg: Seg) -> bool:
        """Whether it is done: no later segment lists another one."""
        if not self.done:
            self._found += [
                each for each in seg.aborted if each.first < self._end and each.last >= self._first
            ]
            self.done = seg.end - seg.unstable >= self._end
        return self.done

    @property
    def found(self) -> tuple[Aborted, ...]:
        """In the order of their first offsets."""
        assert self.done, "a shorter list would show aborted records"
        return tuple(sorted(self._found, key=lambda each: each.first))
