"""ConsumerGroupDescribe (69): v0-1.   v1 member types
Cut by coordinator and joined in the order of the request (see group_calls.py). Groups whose coordinator is not there
have COORDINATOR_NOT_AVAILABLE, those whose answer was lost NOT_COORDINATOR; tools try both again, group by group.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, ToSlots
from kafscale.frontdoor.group_calls import refuse_keys
from kafscale.frontdoor.refusals import failed_key
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import consumer_group_describe as schema

GROUPS: Final = ToSlots(
    schema=schema,
    asked="group_ids",
    response=schema.ConsumerGroupDescribeResponse,
    results="groups",
    failed=failed_key(schema.ConsumerGroupDescribeResponseDescribed),
)
API: Final = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    backend=Backend.COORDINATOR,
    dispatch=GROUPS,
    refuse=refuse_keys(GROUPS),
    large_answer=True,
    reads=Area.GROUPS,
)
