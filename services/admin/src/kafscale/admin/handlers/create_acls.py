"""CreateAcls (30): v1-3.   v2 flexible

SECURITY_DISABLED for each creation: see fixed_answers.py.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.admin.fixed_answers import NO_AUTHORIZER, fixed_answer
from kafscale.runtime.stream.server import AsyncHandler
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.create_acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreateAclsResponseAclCreationResult,
    decode_request,
    encode_response,
)


def handler(_: AdminContext) -> AsyncHandler:
    return fixed_answer(decode_request, _refused, encode_response)


def _refused(request: CreateAclsRequest) -> CreateAclsResponse:
    one = CreateAclsResponseAclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
    )
    return CreateAclsResponse(results=[one] * len(request.creations))
