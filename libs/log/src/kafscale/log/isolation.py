"""What a reader of committed data (isolation level read_committed, KIP-98) sees of a log. Pure.

Nothing writes transactions yet: the last stable offset is the high watermark, and no segment lists an aborted one.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafscale.log.heads import Aborted, Seg
from kafscale.log.state import LogState


def visible_end(state: LogState, *, committed_only: bool) -> int:
    """The offset at which a reader stops: the last stable offset, or the high watermark."""
    return min(state.next, state.lso) if committed_only else state.next


def aborted_in(segs: Iterable[Seg]) -> tuple[Aborted, ...]:
    """The aborted transactions whose markers are in these segments, in their order."""
    return tuple(aborted for seg in segs for aborted in seg.aborted)
