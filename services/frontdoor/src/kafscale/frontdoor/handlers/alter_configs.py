"""AlterConfigs (33): v0-2.   v2 flexible. Replaces the whole set of a resource.
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_configs as schema

API: Final = Api(
    key=ApiKey.ALTER_CONFIGS,
    versions=(0, 2),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.NOT_CONTROLLER, repeatable=False),
    refuse=each(
        schema,
        schema.AlterConfigsResponse,
        ("resources", "responses"),
        schema.AlterConfigsResponseResource,
        "resource_type",
        "resource_name",
    ),
)
