"""DescribeGroups (15): v0-6.   v3 authorized operations · v4 static members · v5 flexible · v6 error messages
Cut by coordinator and joined in the order of the request (see group_calls.py). Groups whose coordinator is not there
have COORDINATOR_NOT_AVAILABLE, those whose answer was lost NOT_COORDINATOR; tools try both again, group by group.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, ToSlots
from kafscale.frontdoor.group_calls import refuse_keys
from kafscale.frontdoor.refusals import failed_key
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_groups as schema

GROUPS: Final = ToSlots(
    schema=schema,
    asked="groups",
    response=schema.DescribeGroupsResponse,
    results="groups",
    failed=failed_key(schema.DescribeGroupsResponseDescribedGroup),
)
API: Final = Api(
    key=ApiKey.DESCRIBE_GROUPS,
    versions=(0, 6),
    backend=Backend.COORDINATOR,
    dispatch=GROUPS,
    refuse=refuse_keys(GROUPS),
    large_answer=True,
    reads=Area.GROUPS,
)
