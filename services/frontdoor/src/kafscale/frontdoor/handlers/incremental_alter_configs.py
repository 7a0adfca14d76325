"""IncrementalAlterConfigs (44): v0-1.   v1 flexible. Sets, deletes, appends and subtracts single values.
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import incremental_alter_configs as schema

API: Final = to_admin(
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    (0, 1),
    each(
        schema,
        schema.IncrementalAlterConfigsResponse,
        ("resources", "responses"),
        schema.IncrementalAlterConfigsResponseResource,
        "resource_type",
        "resource_name",
    ),
    repeatable=False,
)
