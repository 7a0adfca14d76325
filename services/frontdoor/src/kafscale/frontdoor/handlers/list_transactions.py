"""ListTransactions (66): v0-2.   v1 duration · v2 pattern of ids
Every coordinator is asked, and the answers are joined; each front door answers for its own ids (see key_lists.py).
COORDINATOR_NOT_AVAILABLE as a whole if any does not answer. Ids that the client may not describe are left out.
"""

from functools import partial
from typing import Final

from kafscale.frontdoor.api import Api, Backend, Own
from kafscale.frontdoor.authorization import need_of_each
from kafscale.frontdoor.key_lists import KeyList, KeyListHandler
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import list_transactions as schema

DESCRIBE: Final = need_of_each(ApiKey.LIST_TRANSACTIONS)
IDS: Final = KeyList(
    schema=schema,
    response=schema.ListTransactionsResponse,
    entries="transaction_states",
    key="transactional_id",
    describe=DESCRIBE,
)
API: Final = Api(
    key=ApiKey.LIST_TRANSACTIONS,
    versions=(0, 2),
    backend=Backend.COORDINATOR,
    dispatch=Own(partial(KeyListHandler, IDS)),
    refuse=whole(schema, schema.ListTransactionsResponse),
    large_answer=True,
    asks=(DESCRIBE,),
)
