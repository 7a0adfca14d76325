"""An answer on its way out: buffers that are views of pinned segments.

Nobody tells a handler when its answer has left the process, but whoever sends it drops the list then. The
pins live exactly as long as the list.
"""

from collections.abc import Iterable

from kafscale.fetch.cache import Lease
from kafscale.wire.buffers import Buffer


class PinnedAnswer(list[Buffer]):
    """Releases its lease when the last reference to it goes."""

    def __init__(self, buffers: Iterable[Buffer], lease: Lease) -> None:
        super().__init__(buffers)
        self._lease = lease

    def __del__(self) -> None:
        # The views go first: what is released must not still be held by us.
        self.clear()
        self._lease.release()
