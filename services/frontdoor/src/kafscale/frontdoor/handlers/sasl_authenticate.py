"""SaslAuthenticate (36): v0-2.   v1 session lifetime (KIP-368) · v2 flexible
On a SASL listener `authentication/` answers while the client logs in. A request that gets here came too late, or to a
listener without SASL: ILLEGAL_SASL_STATE with Kafka's sentence, and the connection stays open (KafkaApis).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from kafscale.frontdoor.api import Api, Backend, Own
from kafscale.frontdoor.refusals import refuse_exchange, whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import sasl_authenticate as schema

TOO_LATE: Final = "SaslAuthenticate request received after successful authentication"


def _too_late(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
    schema.decode_request(body, version)
    return schema.encode_response(
        schema.SaslAuthenticateResponse(error_code=int(code), error_message=TOO_LATE), version
    )


API: Final = Api(
    key=ApiKey.SASL_AUTHENTICATE,
    versions=(0, 2),
    backend=Backend.FRONTDOOR,
    dispatch=Own(lambda _: partial(refuse_exchange, code=ErrorCode.ILLEGAL_SASL_STATE, refuse=_too_late)),
    refuse=whole(schema, schema.SaslAuthenticateResponse),
)
