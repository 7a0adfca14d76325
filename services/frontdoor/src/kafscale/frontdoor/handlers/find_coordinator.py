"""FindCoordinator (10): v0-6.   v1 key types · v3 flexible · v4 batches of keys, KIP-699
The coordinator names a front door. While none is there: COORDINATOR_NOT_AVAILABLE, which is retried. Keys that the
client may not describe are not sent: GROUP_AUTHORIZATION_FAILED, or TRANSACTIONAL_ID_AUTHORIZATION_FAILED. The other
keys are answered, in the order of the request.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import msgspec
import structlog
from kafscale.access.rules import Need, Side, needs_of
from kafscale.frontdoor.api import Api, Backend, Forward, Own
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.refusals import refuse_exchange
from kafscale.runtime.stream.frame import Reply
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import find_coordinator as schema

log = structlog.get_logger("kafscale.frontdoor.groups")

BATCHES_FROM: Final = 4
NEEDS: Final = needs_of(ApiKey.FIND_COORDINATOR, Side.FRONT_DOOR)
OF_GROUPS, OF_TRANSACTIONS = NEEDS
NEED_OF_TYPE: Final = {0: OF_GROUPS, 1: OF_TRANSACTIONS}
"""By key type. The coordinator refuses every other type, whoever asks."""
FORWARD: Final = Forward(unavailable=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    return refuse_keys(body, version, code, lambda _: code)


def refuse_keys(
    body: memoryview, version: int, code: ErrorCode, code_of: Callable[[str], ErrorCode]
) -> list[Buffer]:
    """`code`: of the whole answer before v4; from then on each key has its own."""
    request = schema.decode_request(body, version)
    response = schema.FindCoordinatorResponse(
        error_code=int(code), error_message=code.message, node_id=-1, host="", port=-1
    )
    if version >= BATCHES_FROM:
        response.coordinators = [_refused(key, code_of(key)) for key in request.coordinator_keys]
    return schema.encode_response(response, version)


def _refused(key: str, code: ErrorCode) -> schema.FindCoordinatorResponseCoordinator:
    return schema.FindCoordinatorResponseCoordinator(
        key=key, node_id=-1, host="", port=-1, error_code=int(code), error_message=code.message
    )


class FindCoordinatorHandler:
    def __init__(self, parts: Parts) -> None:
        self._forwarder = parts.forwarder
        self._authorizer = parts.authorizer

    def __call__(self, exchange: Exchange) -> None:
        if not self._authorizer.enforces:
            self._forwarder.forward(exchange, FORWARD)
            return
        request = schema.decode_request(exchange.request.body, exchange.version)
        keys = request.coordinator_keys if exchange.version >= BATCHES_FROM else [request.key]
        need = NEED_OF_TYPE.get(request.key_type)
        denied = self._authorizer.rights_of(exchange).denied(need, keys) if need is not None else ()
        if need is None or not denied:
            self._forwarder.forward(exchange, FORWARD)
        elif len(denied) == len(set(keys)):
            refuse_exchange(exchange, need.code)
        else:
            self._forward_others(exchange, request, denied, need)

    def _forward_others(
        self,
        exchange: Exchange,
        request: schema.FindCoordinatorRequest,
        denied: Collection[str],
        need: Need,
    ) -> None:
        others = [key for key in request.coordinator_keys if key not in denied]
        share = msgspec.structs.replace(request, coordinator_keys=others)
        self._forwarder.forward(
            exchange,
            FORWARD,
            body=schema.encode_request(share, exchange.version),
            on_reply=partial(_join, request.coordinator_keys, denied, need),
            refuse=partial(_refuse_others, denied, need),
        )


def _join(
    keys: Collection[str],
    denied: Collection[str],
    need: Need,
    exchange: Exchange,
    reply: Reply,
) -> None:
    """Answers the exchange, so that the forwarder has nothing left to answer."""
    try:
        response = schema.decode_response(reply.body, exchange.version)
    except WireError as error:
        log.error("invalid answer of a coordinator", reason=str(error))
        exchange.hang_up("the coordinator's answer cannot be read")
        return
    found = {each.key: each for each in response.coordinators}
    found.update((key, _refused(key, need.code)) for key in denied)
    response.coordinators = [found[key] for key in keys if key in found]
    exchange.answer(schema.encode_response(response, exchange.version))


def _refuse_others(
    denied: Collection[str], need: Need, body: memoryview, version: int, code: ErrorCode
) -> list[Buffer]:
    return refuse_keys(body, version, code, lambda key: need.code if key in denied else code)


API: Final = Api(
    key=ApiKey.FIND_COORDINATOR,
    versions=(0, 6),
    backend=Backend.COORDINATOR,
    dispatch=Own(FindCoordinatorHandler),
    refuse=refuse,
    asks=NEEDS,
)
