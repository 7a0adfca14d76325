"""A bound on bytes held by a service. Reserve before holding, release when let go; it never waits.

What to do when the budget refuses (stop reading, answer a retriable error) is the caller's decision.
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
        """False, and nothing reserved, when it would pass `share` of the budget."""
        assert size_bytes >= 0, "a reservation is not a release"
        wanted = self._used_bytes + size_bytes
        if wanted > self._bytes_max * share:
            self._refusals += 1
            return False
        self._used_bytes = wanted
        return True

    def force(self, size_bytes: int) -> None:
        """Counts bytes that are already held and cannot be refused."""
        assert size_bytes >= 0, "a reservation is not a release"
        self._used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        assert 0 <= size_bytes <= self._used_bytes, "released more than was reserved"
        self._used_bytes -= size_bytes
