"""ApiVersions (18): v0-4.   v1 throttle · v3 client software, flexible · v4 as v3
Answered here, from the table of routes. A version that this server does not know gets UNSUPPORTED_VERSION
in a body of version 0, which every client can read, and the connection stays open. The response header is
version 0 in every version. Returns INVALID_REQUEST for a client software name that Kafka would refuse.
"""

import re
from typing import Final

from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.routes import BY_KEY, ROWS, advertised
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import api_versions as schema

SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
SOFTWARE_FROM: Final = 3
ROW: Final = BY_KEY[ApiKey.API_VERSIONS]


def _body(version: int, code: ErrorCode) -> bytes:
    keys = [
        schema.ApiVersionsResponseVersion(api_key=int(row.key), min_version=low, max_version=high)
        for row in ROWS
        for low, high in [advertised(row)]
    ]
    response = schema.ApiVersionsResponse(error_code=int(code), api_keys=keys)
    return b"".join(bytes(part) for part in schema.encode_response(response, version))


class ApiVersionsHandler:
    """The answers never change, so they are made once."""

    def __init__(self) -> None:
        versions = range(ROW.version_min, ROW.version_max + 1)
        self._bodies = [_body(version, ErrorCode.NONE) for version in versions]
        self._invalid = [_body(version, ErrorCode.INVALID_REQUEST) for version in versions]
        self._unsupported = _body(0, ErrorCode.UNSUPPORTED_VERSION)

    def __call__(self, exchange: Exchange) -> None:
        version = exchange.version
        if not ROW.answers(version):
            exchange.error = int(ErrorCode.UNSUPPORTED_VERSION)
            exchange.answer([self._unsupported])
            return
        try:
            request = schema.decode_request(exchange.request.body, version)
        except WireError as error:
            exchange.hang_up(str(error))
            return
        exchange.answer([self.body(version, request.client_software_name, request.client_software_version)])

    def body(self, version: int, name: str, software_version: str) -> Buffer:
        if version < SOFTWARE_FROM:
            return self._bodies[version]
        legal = SOFTWARE_NAME.fullmatch(name) and SOFTWARE_NAME.fullmatch(software_version)
        return self._bodies[version] if legal else self._invalid[version]
