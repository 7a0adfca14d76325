"""DescribeConfigs (32): v0-4.   v1 sources and synonyms · v3 documentation · v4 flexible
Admin answers; reading twice does no harm. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_configs as schema

API: Final = to_admin(
    ApiKey.DESCRIBE_CONFIGS,
    (0, 4),
    each(
        schema,
        schema.DescribeConfigsResponse,
        ("resources", "results"),
        schema.DescribeConfigsResponseResult,
        "resource_type",
        "resource_name",
    ),
    large_answer=True,
)
