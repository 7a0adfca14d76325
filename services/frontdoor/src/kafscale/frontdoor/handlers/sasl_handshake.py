"""SaslHandshake (17): v0-1.   v1 SaslAuthenticate requests follow, in place of bare tokens (KIP-43, KIP-152)
On a SASL listener `authentication/` answers while the client logs in. A request that gets here came too late, or to a
listener without SASL: ILLEGAL_SASL_STATE without mechanisms, and the connection stays open (KafkaApis).
"""

from functools import partial
from typing import Final

from kafscale.frontdoor.api import Api, Backend, Own
from kafscale.frontdoor.refusals import refuse_exchange, whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import sasl_handshake as schema

API: Final = Api(
    key=ApiKey.SASL_HANDSHAKE,
    versions=(0, 1),
    backend=Backend.FRONTDOOR,
    dispatch=Own(lambda _: partial(refuse_exchange, code=ErrorCode.ILLEGAL_SASL_STATE)),
    refuse=whole(schema, schema.SaslHandshakeResponse),
)
