"""CreatePartitions (37): v0-3.   v2 flexible · v3 THROTTLING_QUOTA_EXCEEDED
Admin decides. Certainly not executed: NOT_CONTROLLER; outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_partitions as schema

API: Final = Api(
    key=ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.NOT_CONTROLLER, repeatable=False),
    refuse=each(
        schema,
        schema.CreatePartitionsResponse,
        ("topics", "results"),
        schema.CreatePartitionsResponseTopicResult,
        "name",
    ),
)
