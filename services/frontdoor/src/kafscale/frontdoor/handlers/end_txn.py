"""EndTxn (26): v0-5.   v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE · v5 a new epoch, KIP-890
To the coordinator of the transactional id's slot, once, and only while it is young (see group_calls.py).
COORDINATOR_NOT_AVAILABLE: not sent. NOT_COORDINATOR: lost, perhaps decided. On both clients repeat the request, and the
coordinator recognizes the repeat.
"""

from typing import Final

from kafscale.frontdoor.api import to_transaction
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import end_txn as schema

API: Final = to_transaction(ApiKey.END_TXN, (0, 5), whole(schema, schema.EndTxnResponse))
