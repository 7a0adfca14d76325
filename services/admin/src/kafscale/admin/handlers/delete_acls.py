"""DeleteAcls (31): v1-3.   v2 flexible

SECURITY_DISABLED for each filter: there is no authorizer.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.admin.errors import NO_AUTHORIZER
from kafscale.runtime.stream.apis import answering
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_acls as api


@answering(api)
async def handler(_: AdminContext, request: api.DeleteAclsRequest) -> api.DeleteAclsResponse:
    one = api.DeleteAclsResponseFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
    )
    return api.DeleteAclsResponse(filter_results=[one] * len(request.filters))
