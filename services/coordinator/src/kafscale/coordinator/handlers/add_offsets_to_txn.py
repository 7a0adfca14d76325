"""AddOffsetsToTxn (25): v0-4.   v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE

The group joins the transaction of the id. Clients of KIP-890 do not send it: their TxnOffsetCommit adds the group.
A request that has expired takes no effect, as with EndTxn.
Errors: INVALID_REQUEST for an id that cannot exist, INVALID_GROUP_ID, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
(INVALID_PRODUCER_EPOCH before v2), CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE (INVALID_TXN_STATE before v4) if the
transaction has too many participants, and those of every call to a slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.registry import GROUP_ID_BYTES_MAX
from kafscale.coordinator.transactions.codes import in_words_of
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.coordinator.transactions.registry import is_legal_id
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.server import AsyncHandler, InboundRequest
from kafscale.storage.transactions import Participants
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import add_offsets_to_txn as api

FENCED_FROM = 2
ABORTABLE_FROM = 4


def handler(context: CoordinatorContext) -> AsyncHandler:
    async def add_offsets_to_txn(inbound: InboundRequest) -> Sequence[Buffer]:
        request = api.decode_request(inbound.body, inbound.meta.api_version)
        error = await _add(context, inbound, request)
        return answered(inbound, api.AddOffsetsToTxnResponse(error_code=error), api.encode_response)

    return add_offsets_to_txn


async def _add(
    context: CoordinatorContext, inbound: InboundRequest, request: api.AddOffsetsToTxnRequest
) -> ErrorCode:
    version = inbound.meta.api_version
    if not is_legal_id(request.transactional_id):
        return ErrorCode.INVALID_REQUEST
    if len(request.group_id.encode()) > GROUP_ID_BYTES_MAX:
        return ErrorCode.INVALID_GROUP_ID
    if inbound.expired(context.clock.real_ms()):
        return ErrorCode.NOT_COORDINATOR
    answer = await context.ids.join(
        request.transactional_id,
        ProducerEpoch(request.producer_id, request.producer_epoch),
        Participants.of(request.group_id),
        add=True,
    )
    return in_words_of(version, answer.error, fenced_from=FENCED_FROM, abortable_from=ABORTABLE_FROM)
