"""DescribeAcls (29): v1-3.   v2 flexible

SECURITY_DISABLED: see no_authorizer.py.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.admin.handlers.no_authorizer import disabled
from kafscale.runtime.stream.server import AsyncHandler
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    decode_request,
    encode_response,
)

NO_AUTHORIZER_ON_BROKER = "No Authorizer is configured on the broker"
"""A Kafka broker answers this request itself, in these words; the others are its controller's."""


def handler(_: AdminContext) -> AsyncHandler:
    return disabled(decode_request, _refused, encode_response)


def _refused(_: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER_ON_BROKER)
