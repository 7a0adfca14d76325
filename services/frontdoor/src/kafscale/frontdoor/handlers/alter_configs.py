"""AlterConfigs (33): v0-2.   v2 flexible. Replaces the whole set of a resource.
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import alter_configs as schema

API: Final = to_admin(
    ApiKey.ALTER_CONFIGS,
    (0, 2),
    each(
        schema,
        schema.AlterConfigsResponse,
        ("resources", "responses"),
        schema.AlterConfigsResponseResource,
        "resource_type",
        "resource_name",
    ),
    repeatable=False,
)
