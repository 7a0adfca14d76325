"""LeaveGroup (13): v0-5.   v3 several members, static ones · v4 flexible · v5 reasons
To the coordinator of the group's slot, once (see group_calls.py).
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost; without a retry the member leaves by its session timeout.
"""

from typing import Final

from kafscale.frontdoor.api import to_group
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import leave_group as schema

API: Final = to_group(ApiKey.LEAVE_GROUP, (0, 5), whole(schema, schema.LeaveGroupResponse))
