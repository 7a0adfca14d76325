"""CreateAcls (30): v1-3.   v2 flexible

There is no authorizer: SECURITY_DISABLED for each creation, as a Kafka broker without one answers. Nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.admin.context import AdminContext
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.create_acls import (
    CreateAclsResponse,
    CreateAclsResponseAclCreationResult,
    decode_request,
    encode_response,
)

NO_AUTHORIZER = "No Authorizer is configured."


def handler(_: AdminContext) -> AsyncHandler:
    async def create_acls(inbound: InboundRequest) -> Sequence[Buffer]:
        request = decode_request(inbound.body, inbound.meta.api_version)
        refused = CreateAclsResponseAclCreationResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
        )
        answer = CreateAclsResponse(results=[refused] * len(request.creations))
        return answered(inbound, answer, encode_response)

    return create_acls
