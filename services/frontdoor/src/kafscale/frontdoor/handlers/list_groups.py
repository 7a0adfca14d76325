"""ListGroups (16): v0-5.   v3 flexible · v4 states · v5 types
Every coordinator is asked, and the answers are joined; each front door answers for its own groups (see key_lists.py).
COORDINATOR_NOT_AVAILABLE as a whole if any does not answer. Groups that the client may not describe are left out.
"""

from functools import partial
from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, Own
from kafscale.frontdoor.authorization import need_of_each
from kafscale.frontdoor.key_lists import KeyList, KeyListHandler
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import list_groups as schema

DESCRIBE: Final = need_of_each(ApiKey.LIST_GROUPS)
GROUPS: Final = KeyList(
    schema=schema,
    response=schema.ListGroupsResponse,
    entries="groups",
    key="group_id",
    describe=DESCRIBE,
)
API: Final = Api(
    key=ApiKey.LIST_GROUPS,
    versions=(0, 5),
    backend=Backend.COORDINATOR,
    dispatch=Own(partial(KeyListHandler, GROUPS)),
    refuse=whole(schema, schema.ListGroupsResponse),
    large_answer=True,
    asks=(DESCRIBE,),
    reads=Area.GROUPS,
)
