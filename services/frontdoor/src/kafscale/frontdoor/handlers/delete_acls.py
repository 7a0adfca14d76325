"""DeleteAcls (31): v0-3.   v1 prefixed patterns · v2 flexible
Admin answers. While none is there: NOT_CONTROLLER, for each filter, since the answer has no other place for it.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import delete_acls as schema

API: Final = to_admin(
    ApiKey.DELETE_ACLS,
    (0, 3),
    each(
        schema,
        schema.DeleteAclsResponse,
        ("filters", "filter_results"),
        schema.DeleteAclsResponseFilterResult,
    ),
    changes_access=True,
)
