"""AlterUserScramCredentials (51): v0-0
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT. The answer has no error for
the whole of it, so each user gets it.
"""

from collections.abc import Sequence
from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import failed
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_user_scram_credentials as schema


def _refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
    request = schema.decode_request(body, version)
    users = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    results = [failed(schema.AlterUserScramCredentialsResponseResult, code, user=user) for user in users]
    return schema.encode_response(schema.AlterUserScramCredentialsResponse(results=results), version)


API: Final = to_admin(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), _refuse, repeatable=False, changes_access=True
)
