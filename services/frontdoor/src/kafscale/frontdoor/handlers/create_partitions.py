"""CreatePartitions (37): v0-3.   v2 flexible · v3 THROTTLING_QUOTA_EXCEEDED
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import create_partitions as schema

API: Final = to_admin(
    ApiKey.CREATE_PARTITIONS,
    (0, 3),
    each(
        schema,
        schema.CreatePartitionsResponse,
        ("topics", "results"),
        schema.CreatePartitionsResponseTopicResult,
        "name",
    ),
    repeatable=False,
)
