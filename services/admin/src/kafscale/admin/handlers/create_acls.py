"""CreateAcls (30): v1-3.   v2 flexible

SECURITY_DISABLED for each creation: there is no authorizer.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.admin.errors import NO_AUTHORIZER
from kafscale.runtime.stream.apis import answering
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_acls as api


@answering(api)
async def handler(_: AdminContext, request: api.CreateAclsRequest) -> api.CreateAclsResponse:
    one = api.CreateAclsResponseAclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
    )
    return api.CreateAclsResponse(results=[one] * len(request.creations))
