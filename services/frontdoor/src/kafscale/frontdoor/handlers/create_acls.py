"""CreateAcls (30): v0-3.   v1 prefixed patterns · v2 flexible
Admin answers. While none is there: NOT_CONTROLLER, for each creation, since the answer has no other place for it.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import create_acls as schema

API: Final = to_admin(
    ApiKey.CREATE_ACLS,
    (0, 3),
    each(
        schema,
        schema.CreateAclsResponse,
        ("creations", "results"),
        schema.CreateAclsResponseAclCreationResult,
    ),
    changes_access=True,
)
