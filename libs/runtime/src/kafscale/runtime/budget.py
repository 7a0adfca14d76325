"""The memory limit of a process. Callers reserve bytes before they hold them, and release them after; no call waits.

The caller decides what a refusal means: it stops reading, or it answers with a retriable error.
"""


class MemoryBudget:
    """Single-threaded: for one event loop."""

    __slots__ = ("_bytes_max", "_refusals", "_used_bytes")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0, "a budget of nothing admits nothing"
        self._bytes_max = bytes_max
        self._used_bytes = 0
        self._refusals = 0

    @property
    def bytes_max(self) -> int:
        return self._bytes_max

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def refusals(self) -> int:
        return self._refusals

    def reserve(self, size_bytes: int, *, share: float = 1.0) -> bool:
        """Returns False and reserves nothing if the total would exceed `share` of the budget."""
        assert size_bytes >= 0, "a reservation is not a release"
        wanted = self._used_bytes + size_bytes
        if wanted > self._bytes_max * share:
            self._refusals += 1
            return False
        self._used_bytes = wanted
        return True

    def force(self, size_bytes: int) -> None:
        """Counts bytes that the caller already holds. The total may exceed the budget."""
        assert size_bytes >= 0, "a reservation is not a release"
        self._used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        assert 0 <= size_bytes <= self._used_bytes, "released more than was reserved"
        self._used_bytes -= size_bytes
