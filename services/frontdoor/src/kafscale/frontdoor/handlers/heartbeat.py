"""Heartbeat (12): v0-4.   v3 static members · v4 flexible
To the coordinator of the group's slot, once (see group_calls.py).
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost. On both clients ask for the coordinator again.
"""

from typing import Final

from kafscale.frontdoor.api import to_group
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import heartbeat as schema

API: Final = to_group(ApiKey.HEARTBEAT, (0, 4), whole(schema, schema.HeartbeatResponse), patient=True)
