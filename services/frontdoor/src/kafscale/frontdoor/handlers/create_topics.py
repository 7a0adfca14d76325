"""CreateTopics (19): v0-7.   v1 validate_only · v4 default counts · v5 configs in the answer, flexible · v7 topic ids
Admin decides. Certainly not executed: NOT_CONTROLLER, on which admin clients try again by themselves;
outcome unknown: REQUEST_TIMED_OUT.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import each
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import create_topics as schema

API: Final = to_admin(
    ApiKey.CREATE_TOPICS,
    (0, 7),
    each(
        schema,
        schema.CreateTopicsResponse,
        ("topics", "topics"),
        schema.CreateTopicsResponseTopicResult,
        "name",
    ),
    repeatable=False,
    large_answer=True,
)
