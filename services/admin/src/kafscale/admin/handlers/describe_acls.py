"""DescribeAcls (29): v1-3.   v2 flexible

There is no authorizer, so there are no ACLs to describe: SECURITY_DISABLED, as a Kafka broker without one answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.admin.context import AdminContext
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.describe_acls import DescribeAclsResponse, decode_request, encode_response

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handler(_: AdminContext) -> AsyncHandler:
    async def describe_acls(inbound: InboundRequest) -> Sequence[Buffer]:
        decode_request(inbound.body, inbound.meta.api_version)
        answer = DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return answered(inbound, answer, encode_response)

    return describe_acls
