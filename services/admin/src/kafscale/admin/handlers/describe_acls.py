"""DescribeAcls (29): v0-3.   v1 prefixed patterns (KIP-290) · v2 flexible

Lists the ACLs that a filter selects, by resource pattern. INVALID_REQUEST for a filter with a value that Kafka does not
know, on which Kafka closes the connection, and if the answer would be too large; KAFKA_STORAGE_ERROR while a record
cannot be read, because the list would lack it; REQUEST_TIMED_OUT if etcd does not answer. Without an authorizer:
SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafscale.access.acl import AclBinding, PatternType, ResourceType
from kafscale.admin.acl_requests import filter_of, size_of
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import UNREAD, incomplete
from kafscale.admin.plan import Refused
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering
from kafscale.storage.etcd.client import EtcdError
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_acls as api

NO_AUTHORIZER_ON_BROKER: Final = Refused(
    ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker"
)
"""A Kafka broker answers this request itself, in these words; its controller answers the other two."""
Pattern = tuple[ResourceType, PatternType, str]


@answering(api)
async def handler(context: AdminContext, request: api.DescribeAclsRequest) -> api.DescribeAclsResponse:
    found = await _selected(context, request)
    if isinstance(found, Refused):
        return api.DescribeAclsResponse(error_code=found.error, error_message=found.message)
    return api.DescribeAclsResponse(resources=_by_pattern(found))


async def _selected(context: AdminContext, request: api.DescribeAclsRequest) -> list[AclBinding] | Refused:
    if context.acl_store is None:
        return NO_AUTHORIZER_ON_BROKER
    wanted = filter_of(request)
    if isinstance(wanted, Refused):
        return wanted
    try:
        await context.access.confirm()
    except EtcdError:
        return UNREAD
    damage = incomplete("ACLs", context.access.views["acls"].unreadable)
    if damage is not None:
        return damage
    room = AnswerRoom(context.settings.answer_bytes_max)
    found = []
    for acl in context.access.stored_acls.values():
        if wanted.matches(acl):
            if not room.take(size_of(acl)):
                return Refused(TOO_LARGE, room.refusal)
            found.append(acl)
    return found


def _by_pattern(acls: Iterable[AclBinding]) -> list[api.DescribeAclsResponseResource]:
    patterns: dict[Pattern, list[api.DescribeAclsResponseAclDescription]] = {}
    for acl in acls:
        pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
        patterns.setdefault(pattern, []).append(
            api.DescribeAclsResponseAclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return [
        api.DescribeAclsResponseResource(
            resource_type=resource_type, resource_name=name, pattern_type=pattern_type, acls=entries
        )
        for (resource_type, pattern_type, name), entries in sorted(patterns.items())
    ]
