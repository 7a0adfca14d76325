"""DescribeAcls (29): v1-3.   v2 flexible

SECURITY_DISABLED: there is no authorizer.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.runtime.stream.apis import answering
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_acls as api

NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"
"""A Kafka broker answers this request itself, in these words; its controller answers the other two."""


@answering(api)
async def handler(_context: AdminContext, _: api.DescribeAclsRequest) -> api.DescribeAclsResponse:
    return api.DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER
    )
