"""AddOffsetsToTxn (25): v0-4.   v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE
To the coordinator of the transactional id's slot, once, and only while it is young (see group_calls.py). Clients of
KIP-890 do not send it. COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost, perhaps added. Clients repeat it.
GROUP_AUTHORIZATION_FAILED for a group that the client may not read.
"""

from typing import Final

from kafscale.access.acl import ResourceType
from kafscale.frontdoor.api import to_transaction
from kafscale.frontdoor.key_fields import field_of
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import add_offsets_to_txn as schema

PRODUCER_BYTES: Final = 8 + 2
"""Between the transactional id and the group: the producer id and its epoch."""
group_behind_producer: Final = field_of("group id", 1, gap_bytes=PRODUCER_BYTES)
API: Final = to_transaction(
    ApiKey.ADD_OFFSETS_TO_TXN,
    (0, 4),
    whole(schema, schema.AddOffsetsToTxnResponse),
    names={ResourceType.GROUP: group_behind_producer},
)
