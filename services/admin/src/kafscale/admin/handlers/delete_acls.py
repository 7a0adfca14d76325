"""DeleteAcls (31): v0-3.   v1 prefixed patterns (KIP-290) · v2 flexible

Deletes the ACLs that a filter selects, and lists them. INVALID_REQUEST for a filter that Kafka refuses, for each filter
of a request with too many, and for a filter whose part of the answer would be too large: then it deletes nothing;
REQUEST_TIMED_OUT if etcd does not answer. A record that cannot be read is left alone. Without an authorizer:
SECURITY_DISABLED for each filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kafscale.access.acl import AclBinding, AclFilter
from kafscale.admin.acl_requests import filter_of, size_of
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import NO_AUTHORIZER, UNREAD, outcome_of
from kafscale.admin.plan import Refused
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.authorization import Altered, acl_text
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.etcd.client import EtcdError
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_acls as api

FILTERS_MAX: Final = 1_000
"""In one request. Each is compared with every ACL."""
TOO_MANY: Final = Refused(ErrorCode.INVALID_REQUEST, f"A request may have {FILTERS_MAX} filters at most.")
Selected = list[AclBinding] | Refused


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.DeleteAclsRequest, meta: RequestMeta
) -> api.DeleteAclsResponse:
    store = context.acl_store
    if store is None:
        return _all(request, NO_AUTHORIZER)
    if len(request.filters) > FILTERS_MAX:
        return _all(request, TOO_MANY)
    async with context.large_answers:
        try:
            await context.access.confirm()
        except EtcdError:
            return _all(request, UNREAD)
        selected = await _selected(context, [filter_of(each) for each in request.filters])
        chosen = dict.fromkeys(acl for each in selected if isinstance(each, list) for acl in each)
        failed = await store.delete(chosen)
        await context.authorization.altered(
            meta,
            (
                Altered(change="delete ACL", target=acl_text(acl), outcome=outcome_of(failed))
                for acl in chosen
            ),
        )
    if failed is not None:
        selected = [failed if each and isinstance(each, list) else each for each in selected]
    return api.DeleteAclsResponse(filter_results=[_result(each) for each in selected])


async def _selected(context: AdminContext, filters: Sequence[AclFilter | Refused]) -> list[Selected]:
    """For each filter the ACLs that it selects. A filter that is repeated is evaluated once."""
    room = AnswerRoom(context.settings.answer_bytes_max)
    acls = list(context.access.stored_acls.values())
    known: dict[AclFilter, Selected] = {}
    selected: list[Selected] = []
    for wanted in filters:
        if isinstance(wanted, Refused):
            selected.append(wanted)
            continue
        found = known.get(wanted)
        if found is None:
            found = known[wanted] = [acl for acl in acls if wanted.matches(acl)]
            await asyncio.sleep(0)
        if isinstance(found, list) and not room.take(sum(map(size_of, found))):
            found = Refused(TOO_LARGE, room.refusal)
        selected.append(found)
    return selected


def _all(request: api.DeleteAclsRequest, refused: Refused) -> api.DeleteAclsResponse:
    return api.DeleteAclsResponse(filter_results=[_result(refused)] * len(request.filters))


def _result(selected: Selected) -> api.DeleteAclsResponseFilterResult:
    if isinstance(selected, Refused):
        return api.DeleteAclsResponseFilterResult(error_code=selected.error, error_message=selected.message)
    return api.DeleteAclsResponseFilterResult(
        error_message=None, matching_acls=[_matching(acl) for acl in selected]
    )


def _matching(acl: AclBinding) -> api.DeleteAclsResponseMatchingAcl:
    return api.DeleteAclsResponseMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
