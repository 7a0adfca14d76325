"""DeleteGroups (42): v0-2.   v2 flexible
Cut by coordinator and joined in the order of the request (see group_calls.py). Groups whose coordinator is not there
have COORDINATOR_NOT_AVAILABLE, those whose answer was lost NOT_COORDINATOR; tools try both again, group by group. A
group whose deletion was done but lost is then GROUP_ID_NOT_FOUND, as it is with Kafka.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, ToSlots
from kafscale.frontdoor.group_calls import refuse_keys
from kafscale.frontdoor.refusals import failed_key
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import delete_groups as schema

GROUPS: Final = ToSlots(
    schema=schema,
    asked="groups_names",
    response=schema.DeleteGroupsResponse,
    results="results",
    failed=failed_key(schema.DeleteGroupsResponseGroupResult),
)
API: Final = Api(
    key=ApiKey.DELETE_GROUPS,
    versions=(0, 2),
    backend=Backend.COORDINATOR,
    dispatch=GROUPS,
    refuse=refuse_keys(GROUPS),
    exclusive=True,
)
