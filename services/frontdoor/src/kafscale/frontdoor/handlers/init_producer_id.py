"""InitProducerId (22): v0-5.   v2 flexible · v3 producer id and epoch, KIP-360 · v4 PRODUCER_FENCED
Without a transactional id any coordinator draws a producer id. While none is there: COORDINATOR_LOAD_IN_PROGRESS, the
one code on which such producers simply try again. An id that no client received is lost, which does no harm.
With a transactional id the request goes to the coordinator of its slot, once (see group_calls.py): a late copy would
fence the producer. COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost. Clients repeat it on both. While
transactions are off: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which ends a client at once.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward, Own, ToSlot
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.key_fields import text_field, transactional_id_of
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.refusals import refuse_exchange, whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import init_producer_id as schema

WITHOUT_ID: Final = Forward(unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
WITH_ID: Final = ToSlot(key_of=transactional_id_of)


class InitProducerIdHandler:
    def __init__(self, parts: Parts) -> None:
        self._forwarder = parts.forwarder
        self._slots = parts.slots
        self._serves_transactions = parts.transaction_version is not None

    def __call__(self, exchange: Exchange) -> None:
        flexible = exchange.version >= exchange.api.key.flexible_from
        if text_field(exchange.request.body, flexible=flexible) is None:
            self._forwarder.forward(exchange, WITHOUT_ID)
        elif self._serves_transactions:
            self._slots.call(exchange, WITH_ID)
        else:
            refuse_exchange(exchange, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


API: Final = Api(
    key=ApiKey.INIT_PRODUCER_ID,
    versions=(0, 5),
    backend=Backend.COORDINATOR,
    dispatch=Own(InitProducerIdHandler),
    refuse=whole(schema, schema.InitProducerIdResponse, producer_id=-1, producer_epoch=-1),
)
