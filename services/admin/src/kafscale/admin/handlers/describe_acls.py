"""DescribeAcls (29): v1-3.   v2 flexible

SECURITY_DISABLED: see fixed_answers.py.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.admin.fixed_answers import fixed_answer
from kafscale.runtime.stream.server import AsyncHandler
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    decode_request,
    encode_response,
)

NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"
"""A Kafka broker answers this request itself, in these words; its controller answers the other two."""


def handler(_: AdminContext) -> AsyncHandler:
    return fixed_answer(decode_request, _refused, encode_response)


def _refused(_: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER)
