"""DescribeAcls (29): v1-3.   v2 flexible
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_acls as schema

API: Final = to_admin(ApiKey.DESCRIBE_ACLS, (1, 3), whole(schema, schema.DescribeAclsResponse))
