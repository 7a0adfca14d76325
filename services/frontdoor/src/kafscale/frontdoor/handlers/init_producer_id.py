"""InitProducerId (22): v0-5.   v2 flexible · v3 producer id and epoch, KIP-360 · v4 PRODUCER_FENCED
The coordinator draws the ids. While none is there: COORDINATOR_LOAD_IN_PROGRESS, the one code on which
producers without a transactional id simply try again. An id that no client received is lost, which does no harm.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import init_producer_id as schema

API: Final = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    versions=(0, 5),
    backend=Backend.COORDINATOR,
    dispatch=Forward(unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    refuse=whole(schema, schema.InitProducerIdResponse, producer_id=-1, producer_epoch=-1),
)
