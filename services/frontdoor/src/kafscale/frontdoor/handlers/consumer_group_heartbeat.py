"""ConsumerGroupHeartbeat (68): v0-1.   v1 regular expressions, member ids from the client (KIP-848)
To the coordinator of the group's slot, once (see group_calls.py). It is never held: assignments come with the next.
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost. On both clients ask for the coordinator again.
One that is older than `AGE_MS_MAX` takes no effect any more: it says which partitions the member has, and by another
front door the member may have got others since. The group would give those to somebody else.
"""

from typing import Final

from kafscale.frontdoor.api import to_group
from kafscale.frontdoor.refusals import whole
from kafscale.runtime.stream.age import AGE_MS_MAX
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import consumer_group_heartbeat as schema

API: Final = to_group(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    (0, 1),
    whole(schema, schema.ConsumerGroupHeartbeatResponse),
    age_ms_max=AGE_MS_MAX,
    patient=True,
)
