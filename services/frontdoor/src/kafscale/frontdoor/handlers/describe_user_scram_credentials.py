"""DescribeUserScramCredentials (50): v0-0
Admin answers. While no admin instance is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_user_scram_credentials as schema

API: Final = to_admin(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    (0, 0),
    whole(schema, schema.DescribeUserScramCredentialsResponse),
    large_answer=True,
)
