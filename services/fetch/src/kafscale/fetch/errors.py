"""What can fail below a handler, and the one Kafka code for each. No failure here is the client's mistake.

All codes are retriable, and none says that the client's offset is wrong. Fetch says
NOT_LEADER_OR_FOLLOWER where the others say LEADER_NOT_AVAILABLE, because Java's consumer throws
IllegalStateException from poll() at any Fetch error that it does not list.
"""

from enum import Enum

from kafscale.log.segment import SegmentError
from kafscale.storage.failures import without_frames
from kafscale.storage.objects import StoreError
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import ErrorCode


class MetadataUnavailable(Exception):
    """etcd did not answer, and what is known may be too old to be answered."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"cannot read the log's metadata: {reason}")
        self.reason = reason


class MemoryExhausted(Exception):
    """Unfinished answers hold all of the memory budget."""

    def __init__(self, *, wanted_bytes: int, held_bytes: int) -> None:
        super().__init__(f"no room for {wanted_bytes} bytes: answers under way hold {held_bytes}")
        self.wanted_bytes = wanted_bytes
        self.held_bytes = held_bytes


class LostSegment(Exception):
    """A committed object is missing, replaced or corrupt, and etcd still names it. An operator must look."""

    def __init__(self, *, key: str, reason: str) -> None:
        super().__init__(f"committed object {key} cannot be served: {reason}")
        self.key = key
        self.reason = reason


ReadFailure = (
    MetadataUnavailable,
    MemoryExhausted,
    LostSegment,
    StoreError,
    SegmentError,
    UnreadableValue,
)
"""External failures that end in an error code for one partition."""


class RequestKind(Enum):
    FETCH = "fetch"
    OFFSETS = "offsets"  # ListOffsets and OffsetForLeaderEpoch


def code_for(failure: BaseException, asked: RequestKind) -> ErrorCode:
    """The failure ends here. It gives up its frames, which hold the request."""
    without_frames(failure)
    if isinstance(failure, MetadataUnavailable):
        return (
            ErrorCode.NOT_LEADER_OR_FOLLOWER if asked is RequestKind.FETCH else ErrorCode.LEADER_NOT_AVAILABLE
        )
    assert isinstance(failure, ReadFailure), failure
    return ErrorCode.KAFKA_STORAGE_ERROR
