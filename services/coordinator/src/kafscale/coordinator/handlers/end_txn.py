"""EndTxn (26): v0-5.   v2 PRODUCER_FENCED · v3 flexible · v5 the next epoch (KIP-890, part 2)

The machine of the transactional id decides (docs/protocol/transactions.md). A request that has expired takes no
effect: its client has asked again by now.
Errors: INVALID_REQUEST for an id that cannot exist, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
(INVALID_PRODUCER_EPOCH before v2), INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, and those of every call to a slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.transactions.codes import in_words_of
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.coordinator.transactions.registry import is_legal_id
from kafscale.runtime.stream.age import age_ms
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import end_txn as api

FENCED_FROM = 2
TV2_FROM = 5


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def end_txn(inbound: InboundRequest) -> Sequence[Buffer]:
        request = api.decode_request(inbound.body, inbound.meta.api_version)
        return answered(inbound, await _end(context, inbound, request), api.encode_response)

    return end_txn


async def _end(
    context: CoordinatorContext, inbound: InboundRequest, request: api.EndTxnRequest
) -> api.EndTxnResponse:
    version, now_ms = inbound.meta.api_version, context.clock.real_ms()
    if not is_legal_id(request.transactional_id):
        return api.EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if inbound.expired(now_ms):
        return api.EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    answer = await context.ids.end(
        request.transactional_id,
        ProducerEpoch(request.producer_id, request.producer_epoch),
        commit=request.committed,
        tv2=version >= TV2_FROM,
        reached_ms=now_ms - age_ms(inbound, now_ms),
    )
    if answer.producer is None:
        error = in_words_of(version, answer.error, fenced_from=FENCED_FROM)
        return api.EndTxnResponse(error_code=error)
    return api.EndTxnResponse(producer_id=answer.producer.producer_id, producer_epoch=answer.producer.epoch)
