"""DescribeTransactions (65): v0-0
Cut by coordinator and joined in the order of the request (see group_calls.py). COORDINATOR_NOT_AVAILABLE for an id
whose coordinator is not there, NOT_COORDINATOR for one whose answer was lost; tools try both again.
TRANSACTIONAL_ID_AUTHORIZATION_FAILED for those that the client may not describe. The coordinator leaves out topics that
the client may not describe.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, ToSlots
from kafscale.frontdoor.group_calls import refuse_keys
from kafscale.frontdoor.refusals import failed_key
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_transactions as schema

KEY: Final = "transactional_id"
IDS: Final = ToSlots(
    schema=schema,
    asked="transactional_ids",
    response=schema.DescribeTransactionsResponse,
    results="transaction_states",
    failed=failed_key(schema.DescribeTransactionsResponseTransactionState, KEY),
    key=KEY,
)
API: Final = Api(
    key=ApiKey.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    backend=Backend.COORDINATOR,
    dispatch=IDS,
    refuse=refuse_keys(IDS),
    large_answer=True,
)
