"""AlterClientQuotas (49): v0-1.   v1 flexible (KIP-546)

Sets and removes quotas. An error is of one entity, and the others are altered. INVALID_REQUEST with Kafka's messages
for what is no entity, no quota or no value, for an entity or a quota that is named twice, and for more than 1,000
entities at once; POLICY_VIOLATION if the maximum number of entities is stored; KAFKA_STORAGE_ERROR if the stored record
cannot be read; REQUEST_TIMED_OUT if etcd does not answer. With `validate_only` the answer is the same, and nothing is
stored.
"""

from __future__ import annotations

from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.admin.quota_alterations import Parts, planned
from kafscale.runtime.stream.apis import answering
from kafscale.wire.schema import alter_client_quotas as api


@answering(api)
async def handler(
    context: AdminContext, request: api.AlterClientQuotasRequest
) -> api.AlterClientQuotasResponse:
    plan = planned(request.entries)
    alterations = list(plan.alterations.values())
    made = await context.quota_store.alter(alterations, only_validate=request.validate_only)
    outcomes = {**made, **plan.refused}
    return api.AlterClientQuotasResponse(entries=[_entry(*outcome) for outcome in outcomes.items()])


def _entry(parts: Parts, refused: Refused | None) -> api.AlterClientQuotasResponseEntry:
    return api.AlterClientQuotasResponseEntry(
        error_code=refused.error if refused else 0,
        error_message=refused.message if refused else None,
        entity=[api.AlterClientQuotasResponseEntity(kind, name) for kind, name in parts],
    )
