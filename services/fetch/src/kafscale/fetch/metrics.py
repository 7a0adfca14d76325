"""What the service tells Prometheus: counted as plain integers where it happens, read when asked."""

from collections.abc import Sequence

from kafscale.fetch.reader import Ask
from kafscale.wire.errors import ErrorCode


class FetchMetrics:
    """Counters of the handlers."""

    __slots__ = ("bytes_served", "errors", "overloaded", "partitions", "requests", "segments_joined")

    def __init__(self) -> None:
        self.requests = 0
        self.partitions = 0
        self.bytes_served = 0
        self.segments_joined = 0
        self.overloaded = 0
        self.errors: dict[ErrorCode, int] = {}

    def answered(self, asks: Sequence[Ask]) -> None:
        self.requests += 1
        self.partitions += len(asks)
        for ask in asks:
            self.bytes_served += ask.cut.size
            self.segments_joined += len(ask.cut.parts)
            self.failed(ask.spot.error)

    def failed(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self.errors[error] = self.errors.get(error, 0) + 1
