"""Fetch sessions (KIP-227), answered without keeping any. Pure.

Session id 0 in an answer tells the client that no session was made, and it sends full requests from then on; any
instance can so serve any request. An id that a client brings was never given out by us: a full request
with it (epoch 0 or -1) closes it, which is done already; an incremental one gets FETCH_SESSION_ID_NOT_FOUND,
never a success that would let the client believe in its id.
"""

from typing import Final

from kafscale.wire.errors import ErrorCode

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1


def session_error(session_epoch: int) -> ErrorCode:
    """NONE: serve the request in full, answering session id 0. Versions below 7 have epoch -1."""
    if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return ErrorCode.NONE
    return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
