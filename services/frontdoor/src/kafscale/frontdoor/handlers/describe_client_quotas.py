"""DescribeClientQuotas (48): v0-1.   v1 flexible
Admin answers. While no admin instance is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_client_quotas as schema

API: Final = to_admin(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    (0, 1),
    whole(schema, schema.DescribeClientQuotasResponse, entries=None),
    large_answer=True,
)
