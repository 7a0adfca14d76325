"""InitProducerId (22): v0-5.   v3 producer id and epoch of a producer that recovers (KIP-360)

Each call without a transactional id gets a new producer id with epoch 0, even if it names its present id. The
producer's sequences then restart (KIP-360). TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional id, because
there are no transactions yet: this error ends a client at once, while clients retry most other errors forever.
COORDINATOR_NOT_AVAILABLE if no block of ids could be reserved, or their record is damaged. The client retries.
"""

from __future__ import annotations

import structlog
from kafscale.coordinator.context import CoordinatorContext
from kafscale.runtime.stream.apis import answering
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.etcd.swap import TooContended
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import init_producer_id as api

log = structlog.get_logger(__name__)


@answering(api)
async def handler(
    context: CoordinatorContext, request: api.InitProducerIdRequest
) -> api.InitProducerIdResponse:
    if request.transactional_id is not None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return api.InitProducerIdResponse(error_code=error, producer_epoch=-1)
    try:
        return api.InitProducerIdResponse(producer_id=await context.producer_ids.draw(), producer_epoch=0)
    except (EtcdError, TooContended, UnreadableValue) as trouble:
        log.warning("producer id unavailable", reason=str(trouble))
        return api.InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
