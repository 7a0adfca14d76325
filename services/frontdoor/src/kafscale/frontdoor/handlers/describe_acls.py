"""DescribeAcls (29): v0-3.   v1 prefixed patterns · v2 flexible
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_acls as schema

API: Final = to_admin(
    ApiKey.DESCRIBE_ACLS, (0, 3), whole(schema, schema.DescribeAclsResponse), large_answer=True
)
