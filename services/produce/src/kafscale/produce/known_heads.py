"""What this instance remembers of the heads of partitions that it had.

While a topic exists, its leader epochs and high watermarks only grow. So a head that was read later, and is lower than
one that was committed or read before, is proof that etcd went back, also between two witnesses (`storage.history`).
"""

from __future__ import annotations

from kafscale.log.heads import Head
from kafscale.storage.history.history import History
from kafscale.storage.keys import PartitionKey


class KnownHeads:
    """Some 200 bytes for each partition that this instance ever had."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._known: dict[PartitionKey, tuple[int, int]] = {}  # → epoch, high watermark

    def note(self, key: PartitionKey, head: Head | None) -> None:
        """Committed or read by this instance; None: it was never served."""
        if head is not None:
            epoch, high_watermark = self._known.get(key, (0, 0))
            self._known[key] = (max(epoch, head.epoch), max(high_watermark, head.next))

    def agree(self, key: PartitionKey, head: Head | None) -> bool:
        """Whether the partition may be claimed from this head, which was read after all that was noted.

        If the head is lower, the instance stops.
        """
        epoch, high_watermark = self._known.get(key, (0, 0))
        if head is not None and (head.epoch < epoch or head.next < high_watermark):
            self._history.suspect(
                f"the head of {head.topic}/{key[1]} has epoch {head.epoch} and high watermark {head.next}, "
                f"and had {epoch} and {high_watermark}"
            )
        return self._history.stopped is None
