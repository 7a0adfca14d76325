"""ApiVersions (18): v0-4.   v1 throttle · v3 client software, flexible · v4 as v3
The front door answers from the collection of APIs. A version that this server does not know gets UNSUPPORTED_VERSION
in a body of version 0, which every client can read, and the connection stays open. The response header is
version 0 in every version. Returns INVALID_REQUEST for a client software name that Kafka would refuse.
While transactions are on, the answer names the feature `transaction.version` (KIP-584). Java's producer learns from it
which protocol of transactions to use (KIP-890).
"""

import re
from typing import Final

from kafscale.frontdoor.api import Api, Backend, Own
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import api_versions as schema

SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
SOFTWARE_FROM: Final = 3
TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSIONS: Final = (0, 2)
FEATURES_EPOCH: Final = 1
"""Clients take the features with the highest epoch that they have seen. Every front door says the same."""
SUPPORTED_FROM_0_FROM: Final = 4
"""Clients of older versions cannot read a supported version of 0 (KAFKA-17011), so they see no supported feature."""


def _body(parts: Parts, version: int, code: ErrorCode) -> bytes:
    keys = [
        schema.ApiVersionsResponseVersion(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in parts.advertised.items()
    ]
    response = schema.ApiVersionsResponse(error_code=int(code), api_keys=keys)
    if parts.transaction_version is not None:
        _add_feature(response, version, parts.transaction_version)
    return b"".join(bytes(part) for part in schema.encode_response(response, version))


def _add_feature(response: schema.ApiVersionsResponse, version: int, level: int) -> None:
    """Level 0 is none in Kafka's words: it is in no list of finalized features."""
    low, high = TRANSACTION_VERSIONS
    if version >= SUPPORTED_FROM_0_FROM:
        response.supported_features = [
            schema.ApiVersionsResponseSupportedFeatureKey(
                name=TRANSACTION_VERSION, min_version=low, max_version=high
            )
        ]
    response.finalized_features_epoch = FEATURES_EPOCH
    if level:
        response.finalized_features = [
            schema.ApiVersionsResponseFinalizedFeatureKey(
                name=TRANSACTION_VERSION, max_version_level=level, min_version_level=level
            )
        ]


class ApiVersionsHandler:
    """The answers never change, so they are made once."""

    def __init__(self, parts: Parts) -> None:
        versions = range(API.versions[1] + 1)
        self._bodies = [_body(parts, version, ErrorCode.NONE) for version in versions]
        self._invalid = [_body(parts, version, ErrorCode.INVALID_REQUEST) for version in versions]
        self._unsupported = _body(parts, 0, ErrorCode.UNSUPPORTED_VERSION)

    def __call__(self, exchange: Exchange) -> None:
        body, code = self.answer(exchange.request.body, exchange.version)
        exchange.error = int(code)
        exchange.answer([body])

    def answer(self, body: memoryview, version: int) -> tuple[Buffer, ErrorCode]:
        """The body of the answer, and the error in it. Clients that have not logged in get the same. Raises
        WireError."""
        if not 0 <= version < len(self._bodies):
            return self._unsupported, ErrorCode.UNSUPPORTED_VERSION
        request = schema.decode_request(body, version)
        if version >= SOFTWARE_FROM and not _is_legal(request):
            return self._invalid[version], ErrorCode.INVALID_REQUEST
        return self._bodies[version], ErrorCode.NONE


def _is_legal(request: schema.ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(SOFTWARE_NAME.fullmatch(name) for name in names)


API: Final = Api(
    key=ApiKey.API_VERSIONS,
    versions=(0, 4),
    backend=Backend.FRONTDOOR,
    dispatch=Own(ApiVersionsHandler),
    refuse=whole(schema, schema.ApiVersionsResponse),
)
