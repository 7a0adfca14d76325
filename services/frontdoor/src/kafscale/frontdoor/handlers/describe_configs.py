"""DescribeConfigs (32): v0-4.   v1 sources and synonyms · v3 documentation · v4 flexible
Admin answers; reading twice does no harm. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_configs as schema

API: Final = Api(
    key=ApiKey.DESCRIBE_CONFIGS,
    versions=(0, 4),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.NOT_CONTROLLER),
    refuse=each(
        schema,
        schema.DescribeConfigsResponse,
        ("resources", "results"),
        schema.DescribeConfigsResponseResult,
        "resource_type",
        "resource_name",
    ),
    large_answer=True,
)
