"""CreateAcls (30): v0-3.   v1 prefixed patterns (KIP-290) · v2 flexible

INVALID_REQUEST for what is no ACL, for texts of more than 1,024 characters, and for more than 10,000 ACLs at once;
POLICY_VIOLATION if the maximum number is stored; KAFKA_STORAGE_ERROR if the record of the same ACL cannot be read;
REQUEST_TIMED_OUT if etcd does not answer. An ACL that exists already is no error. Without an authorizer:
SECURITY_DISABLED for each creation.
"""

from __future__ import annotations

from typing import Final

from kafscale.admin.acl_requests import binding_of
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import NO_AUTHORIZER, outcome_of
from kafscale.admin.plan import Refused
from kafscale.runtime.authorization import Altered, acl_text
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import create_acls as api

CREATIONS_MAX: Final = 10_000
"""In one request. Each takes some time of the event loop."""
TOO_MANY: Final = Refused(ErrorCode.INVALID_REQUEST, f"A request may have {CREATIONS_MAX} ACLs at most.")


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.CreateAclsRequest, meta: RequestMeta
) -> api.CreateAclsResponse:
    if context.acl_store is None:
        return api.CreateAclsResponse(results=[_result(NO_AUTHORIZER)] * len(request.creations))
    if len(request.creations) > CREATIONS_MAX:
        return api.CreateAclsResponse(results=[_result(TOO_MANY)] * len(request.creations))
    wanted = [binding_of(creation) for creation in request.creations]
    made = await context.acl_store.create(acl for acl in wanted if not isinstance(acl, Refused))
    await context.authorization.altered(
        meta,
        (
            Altered(change="create ACL", target=acl_text(acl), outcome=outcome_of(refused))
            for acl, refused in made.items()
        ),
    )
    outcomes = [acl if isinstance(acl, Refused) else made[acl] for acl in wanted]
    return api.CreateAclsResponse(results=[_result(outcome) for outcome in outcomes])


def _result(refused: Refused | None) -> api.CreateAclsResponseAclCreationResult:
    """The text of a success is empty, as in Kafka: kafka-go cannot read a null."""
    if refused is None:
        return api.CreateAclsResponseAclCreationResult()
    return api.CreateAclsResponseAclCreationResult(error_code=refused.error, error_message=refused.message)
