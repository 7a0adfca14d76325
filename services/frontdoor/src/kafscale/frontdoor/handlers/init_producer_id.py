"""InitProducerId (22): v0-5.   v2 flexible · v3 producer id and epoch, KIP-360 · v4 PRODUCER_FENCED
The coordinator draws the ids. While none is there: COORDINATOR_LOAD_IN_PROGRESS, the one code on which
producers without a transactional id simply try again. An id that nobody received is lost, no harm.
"""

from typing import Final

from kafscale.frontdoor.forwarding import Policy
from kafscale.frontdoor.routes import Backend, Stream
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import init_producer_id as schema


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    schema.decode_request(body, version)
    response = schema.InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
    return schema.encode_response(response, version)


POLICY: Final = Policy(
    backend=Backend.COORDINATOR,
    stream=Stream.CONTROL,
    refuse=refuse,
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
