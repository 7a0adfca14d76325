"""DeleteAcls (31): v1-3.   v2 flexible
Admin answers. While none is there: NOT_CONTROLLER, for each filter, since the answer has no other place for it.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_acls as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    refused = schema.DeleteAclsResponseFilterResult(error_code=int(code), error_message=code.message)
    answer = schema.DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    return schema.encode_response(answer, version)


POLICY: Final = Policy(
    backend=Backend.ADMIN,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.NOT_CONTROLLER,
)
