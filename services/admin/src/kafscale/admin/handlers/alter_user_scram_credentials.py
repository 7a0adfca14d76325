"""AlterUserScramCredentials (51): v0 (KIP-554). Stores, replaces and deletes SCRAM credentials.

UNACCEPTABLE_CREDENTIAL for fewer than 4,096 or more than 16,384 iterations, an empty or long name, a long salt;
UNSUPPORTED_SASL_MECHANISM; RESOURCE_NOT_FOUND for a deletion of what is not there; DUPLICATE_RESOURCE for a user who is
named twice, of whom nothing is altered; INVALID_REQUEST for more than 1,000 alterations; POLICY_VIOLATION if the
maximum number is stored; KAFKA_STORAGE_ERROR if the stored one cannot be read; REQUEST_TIMED_OUT if etcd does not
answer.
"""

from __future__ import annotations

from kafscale.access.scram_credentials import ScramMechanism
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import guarded, outcome_of
from kafscale.admin.plan import Refused
from kafscale.admin.user_alterations import Alteration, planned
from kafscale.admin.user_store import Outcomes
from kafscale.runtime.authorization import Altered
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.schema import alter_user_scram_credentials as api


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.AlterUserScramCredentialsRequest, meta: RequestMeta
) -> api.AlterUserScramCredentialsResponse:
    view = context.access
    unconfirmed = await guarded(view.confirm())
    outcomes: Outcomes
    if isinstance(unconfirmed, Refused):
        names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
        outcomes = dict.fromkeys(names, unconfirmed)
    else:

        def exists(name: str, mechanism: ScramMechanism) -> bool:
            """A credential that cannot be read exists: the store refuses to delete it."""
            key = view.keys.user(name, mechanism)
            return view.credential(name, mechanism) is not None or key in view.views["users"].unreadable

        plan = planned(request.deletions, request.upsertions, exists)
        made = await context.user_store.alter(list(plan.alterations.values()))
        outcomes = {**plan.refused, **made}
        altered = (_altered(each, made[each.name]) for each in plan.alterations.values())
        await context.authorization.altered(meta, altered)
    results = [
        api.AlterUserScramCredentialsResponseResult(
            user=name,
            error_code=refused.error if refused else 0,
            error_message=refused.message if refused else None,
        )
        for name, refused in outcomes.items()
    ]
    return api.AlterUserScramCredentialsResponse(results=results)


def _altered(alteration: Alteration, refused: Refused | None) -> Altered:
    """For the audit log."""
    return Altered(
        change="delete credential" if alteration.credential is None else "store credential",
        target=f"{alteration.name} {alteration.mechanism.sasl_name}",
        outcome=outcome_of(refused),
    )
