"""DeleteAcls (31): v1-3.   v2 flexible

There is no authorizer: SECURITY_DISABLED for each filter, as a Kafka broker without one answers. Nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.admin.context import AdminContext
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.delete_acls import (
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
    decode_request,
    encode_response,
)

NO_AUTHORIZER = "No Authorizer is configured."


def handler(_: AdminContext) -> AsyncHandler:
    async def delete_acls(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        refused = DeleteAclsResponseFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
        answer = DeleteAclsResponse(filter_results=[refused] * len(request.filters))
        return answered(inbound, answer, encode_response)

    return delete_acls
