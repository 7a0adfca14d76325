"""InitProducerId (22): v0-5.   v3 producer id and epoch of a producer that recovers (KIP-360) · v4 PRODUCER_FENCED

Without a transactional id each call gets a new producer id with epoch 0, even if it names its present id. The
producer's sequences then restart (KIP-360). With one the machine of the id answers (docs/protocol/transactions.md): the
epoch rises, and what its producer had under way is aborted. TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional
id while transactions are off: this error ends a client at once, while clients retry most other errors forever.
COORDINATOR_NOT_AVAILABLE if no block of ids could be reserved, or their record is damaged. The client retries.
Also: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED (INVALID_PRODUCER_EPOCH before v4),
CONCURRENT_TRANSACTIONS, and those of every call to a slot.
"""

from __future__ import annotations

import structlog
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.transactions.codes import in_words_of
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.coordinator.transactions.registry import TransactionalIds, is_legal_id
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.etcd.swap import TooContended
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import init_producer_id as api

log = structlog.get_logger(__name__)

NONE = -1
FENCED_FROM = 4


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.InitProducerIdRequest, meta: RequestMeta
) -> api.InitProducerIdResponse:
    if request.transactional_id is None:
        return await _without_id(context)
    if context.transactional_ids is None:
        return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    timeout_ms_max = context.settings.transaction_max_timeout_ms
    error = _wrong_with(request, request.transactional_id, timeout_ms_max)
    if error is not ErrorCode.NONE:
        return _failed(error)
    return await _with_id(context.transactional_ids, request, request.transactional_id, meta.api_version)


async def _without_id(context: CoordinatorContext) -> api.InitProducerIdResponse:
    try:
        return api.InitProducerIdResponse(producer_id=await context.producer_ids.draw(), producer_epoch=0)
    except (EtcdError, TooContended, UnreadableValue) as trouble:
        log.warning("producer id unavailable", reason=str(trouble))
        return _failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _wrong_with(request: api.InitProducerIdRequest, name: str, timeout_ms_max: int) -> ErrorCode:
    is_half = (request.producer_id == NONE) != (request.producer_epoch == NONE)
    if not is_legal_id(name) or is_half:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= timeout_ms_max:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


async def _with_id(
    ids: TransactionalIds, request: api.InitProducerIdRequest, name: str, version: int
) -> api.InitProducerIdResponse:
    expected = (
        None if request.producer_id == NONE else ProducerEpoch(request.producer_id, request.producer_epoch)
    )
    answer = await ids.init(name, timeout_ms=request.transaction_timeout_ms, expected=expected)
    if answer.producer is None:
        return _failed(in_words_of(version, answer.error, fenced_from=FENCED_FROM))
    return api.InitProducerIdResponse(
        producer_id=answer.producer.producer_id, producer_epoch=answer.producer.epoch
    )


def _failed(error: ErrorCode) -> api.InitProducerIdResponse:
    return api.InitProducerIdResponse(error_code=error, producer_epoch=-1)
