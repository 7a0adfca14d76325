"""ConsumerGroupDescribe (69): v0-1.   v1 member types
Cut by coordinator and joined in the order of the request (see group_calls.py). Groups whose coordinator is not there
have COORDINATOR_NOT_AVAILABLE, those whose answer was lost NOT_COORDINATOR; tools try both again, group by group.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, ToGroups
from kafscale.frontdoor.group_calls import refuse_groups
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import consumer_group_describe as schema

GROUPS: Final = ToGroups(
    schema=schema,
    asked="group_ids",
    response=schema.ConsumerGroupDescribeResponse,
    results="groups",
    entry=schema.ConsumerGroupDescribeResponseDescribed,
)
API: Final = Api(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    backend=Backend.COORDINATOR,
    dispatch=GROUPS,
    refuse=refuse_groups(GROUPS),
    large_answer=True,
    reads=Area.GROUPS,
)
