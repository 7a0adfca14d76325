"""DescribeAcls (29): v1-3.   v2 flexible
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_acls as schema

API: Final = Api(
    key=ApiKey.DESCRIBE_ACLS,
    versions=(1, 3),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.NOT_CONTROLLER),
    refuse=whole(schema, schema.DescribeAclsResponse),
)
