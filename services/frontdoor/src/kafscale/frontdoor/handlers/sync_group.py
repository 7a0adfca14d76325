"""SyncGroup (14): v0-5.   v3 static members · v4 flexible · v5 protocol type and name
To the coordinator of the group's slot, once (see group_calls.py). It is answered when the leader has brought the
assignment; the request does not say how long that may take, so it gets the usual `max.poll.interval.ms`.
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost. On both clients ask for the coordinator and join again.
"""

from typing import Final

from kafscale.frontdoor.api import to_group
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import sync_group as schema

WAIT_MS: Final = 300_000


def wait_ms(_body: memoryview, _version: int) -> int:
    return WAIT_MS


API: Final = to_group(
    ApiKey.SYNC_GROUP, (0, 5), whole(schema, schema.SyncGroupResponse), wait_ms=wait_ms, writes=None
)
