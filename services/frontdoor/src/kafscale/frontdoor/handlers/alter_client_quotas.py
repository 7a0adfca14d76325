"""AlterClientQuotas (49): v0-1.   v1 flexible
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT. The answer has no error for
the whole of it, so each entity gets it.
"""

from collections.abc import Sequence
from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import failed
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_client_quotas as schema


def _refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
    entries = [
        failed(
            schema.AlterClientQuotasResponseEntry,
            code,
            entity=[
                schema.AlterClientQuotasResponseEntity(part.entity_type, part.entity_name)
                for part in entry.entity
            ],
        )
        for entry in schema.decode_request(body, version).entries
    ]
    return schema.encode_response(schema.AlterClientQuotasResponse(entries=entries), version)


API: Final = to_admin(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), _refuse, repeatable=False, changes_access=True)
