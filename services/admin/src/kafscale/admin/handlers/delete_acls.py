"""DeleteAcls (31): v1-3.   v2 flexible

SECURITY_DISABLED for each filter: see fixed_answers.py.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.admin.fixed_answers import NO_AUTHORIZER, fixed_answer
from kafscale.runtime.stream.server import AsyncHandler
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
    decode_request,
    encode_response,
)


def handler(_: AdminContext) -> AsyncHandler:
    return fixed_answer(decode_request, _refused, encode_response)


def _refused(request: DeleteAclsRequest) -> DeleteAclsResponse:
    one = DeleteAclsResponseFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[one] * len(request.filters))
