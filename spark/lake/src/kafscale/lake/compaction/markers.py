"""Which markers of transactions compaction removes, and when. Pure: Kafka's rule (`CleanedTransactionMetadata`).

A marker must outlive the records of its transaction: without it, a reader would take them for those of the producer's
next transaction. So a marker of a producer of whom nothing was read since its marker before gets a delete horizon, as a
tombstone does, and goes once that is over. Then the entry of an aborted transaction goes with it: a reader that was
told of it, and never sees its marker, would hide the producer's later records.

Only a pass that reads every batch from the start of the log knows what is left of a transaction. A horizon is final,
because nothing is ever added before a marker; so every pass may remove a marker whose horizon is over.
"""

from __future__ import annotations

import numpy as np
from kafscale.lake.heads import Heads
from kafscale.wire.batches import CONTROL, DELETE_HORIZON
from numpy.typing import NDArray


class LoneMarkers:
    """Of one pass. It takes the batches of all segments in their order. `from_start`: the pass began with the log."""

    def __init__(self, *, from_start: bool) -> None:
        self._from_start = from_start
        self._seen: set[int] = set()  # producers with a batch since their last marker

    def take(self, heads: Heads) -> set[int]:
        """The places of the markers that get a horizon now."""
        if not self._from_start:
            return set()
        found: set[int] = set()
        of_producers = np.flatnonzero(heads["producer_id"] >= 0)
        some = heads[of_producers]
        controls = (some["attributes"] & CONTROL) != 0
        flagged = (some["attributes"] & DELETE_HORIZON) != 0
        for place, producer, control, dated, records in zip(
            of_producers.tolist(),
            some["producer_id"].tolist(),
            controls.tolist(),
            flagged.tolist(),
            some["records"].tolist(),
            strict=True,
        ):
            if not control:
                self._seen.add(producer)
            elif records:
                if producer not in self._seen and not dated:
                    found.add(place)
                self._seen.discard(producer)
        return found


def due_markers(heads: Heads, now_ms: int) -> NDArray[np.bool_]:
    """Those whose horizon is over."""
    attributes = heads["attributes"]
    marked = ((attributes & CONTROL) != 0) & ((attributes & DELETE_HORIZON) != 0)
    due: NDArray[np.bool_] = marked & (heads["records"] > 0) & (heads["base_timestamp"] <= now_ms)
    return due
