"""OffsetDelete (47): v0-0.
To the coordinator of the group's slot, once (see group_calls.py).
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost. Tools try again on both.
"""

from typing import Final

from kafscale.frontdoor.api import to_group
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import offset_delete as schema

API: Final = to_group(
    ApiKey.OFFSET_DELETE, (0, 0), whole(schema, schema.OffsetDeleteResponse), exclusive=True
)
