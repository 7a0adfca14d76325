"""The memory limit of a process. Callers reserve bytes before they hold them, and release them after; no call waits.

The caller decides what a refusal means: it stops reading, or it answers with a retriable error.
"""


class MemoryBudget:
    """Single-threaded: for one event loop."""

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0, "a budget of nothing admits nothing"
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.refusals = 0

    def reserve(self, size_bytes: int, *, share: float = 1.0) -> bool:
        """Returns False and reserves nothing if the total would exceed `share` of the budget."""
        assert size_bytes >= 0, "a reservation is not a release"
        wanted = self.used_bytes + size_bytes
        if wanted > self.bytes_max * share:
            self.refusals += 1
            return False
        self.used_bytes = wanted
        return True

    def force(self, size_bytes: int) -> None:
        """Counts bytes that the caller already holds. The total may exceed the budget."""
        assert size_bytes >= 0, "a reservation is not a release"
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        assert 0 <= size_bytes <= self.used_bytes, "released more than was reserved"
        self.used_bytes -= size_bytes
