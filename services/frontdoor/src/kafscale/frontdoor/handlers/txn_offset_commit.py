"""TxnOffsetCommit (28): v0-5.   v2 leader epochs · v3 members, flexible · v4 TRANSACTION_ABORTABLE · v5 joins, KIP-890
To the coordinator of the group's slot, once, and only while it is young (see group_calls.py). The group is the second
field. COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost, perhaps written. On both clients send it again.
TRANSACTIONAL_ID_AUTHORIZATION_FAILED or GROUP_AUTHORIZATION_FAILED for every partition. The coordinator answers
everything else, also TOPIC_AUTHORIZATION_FAILED.
"""

from typing import Final

from kafscale.access.acl import ResourceType
from kafscale.frontdoor.api import Api, Area, Backend, ToSlot
from kafscale.frontdoor.key_fields import field_of
from kafscale.frontdoor.refusals import each_partition
from kafscale.runtime.stream.age import AGE_MS_MAX
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import txn_offset_commit as schema

group_behind_id: Final = field_of("group id", 1)
API: Final = Api(
    key=ApiKey.TXN_OFFSET_COMMIT,
    versions=(0, 5),
    backend=Backend.COORDINATOR,
    dispatch=ToSlot(key_of=group_behind_id, age_ms_max=AGE_MS_MAX),
    refuse=each_partition(
        schema,
        schema.TxnOffsetCommitResponse,
        schema.TxnOffsetCommitResponseTopic,
        schema.TxnOffsetCommitResponsePartition,
        names=("name",),
        number="partition_index",
    ),
    names={ResourceType.GROUP: group_behind_id},
    writes=Area.GROUPS,
)
