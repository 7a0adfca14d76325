"""DescribeClientQuotas (48): v0-1.   v1 flexible (KIP-546)

Lists the stored quotas that a filter selects. A filter that Kafka refuses is refused with Kafka's own message:
INVALID_REQUEST, as is an answer that would be too large; UNSUPPORTED_VERSION for an unknown type of entity.
KAFKA_STORAGE_ERROR while a record cannot be read, because the list would lack it; REQUEST_TIMED_OUT if etcd does not
answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafscale.access.quota import Default, QuotaEntity, QuotaKey
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import UNREAD, incomplete
from kafscale.admin.plan import Refused
from kafscale.admin.quota_alterations import KINDS
from kafscale.runtime.answer_room import ENTRY_BYTES, TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering
from kafscale.storage.etcd.client import EtcdError
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_client_quotas as api

EXACT, DEFAULT, SPECIFIED = range(3)
KEYS = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONNECTION_CREATION_RATE,
)
"""In the order of Kafka's answers, which Kafka's own collections give."""
Parts = dict[str, str | None]
"""Types and names of an entity. The name of the default is null."""


@answering(api)
async def handler(
    context: AdminContext, request: api.DescribeClientQuotasRequest
) -> api.DescribeClientQuotasResponse:
    found = await _selected(context, request)
    if isinstance(found, Refused):
        return api.DescribeClientQuotasResponse(
            error_code=found.error, error_message=found.message, entries=None
        )
    return api.DescribeClientQuotasResponse(entries=found)


async def _selected(
    context: AdminContext, request: api.DescribeClientQuotasRequest
) -> list[api.DescribeClientQuotasResponseEntry] | Refused:
    wrong = wrong_filter(request.components)
    if wrong is not None:
        return Refused(ErrorCode.INVALID_REQUEST, wrong)
    unknown = next((one.entity_type for one in request.components if one.entity_type not in KINDS), None)
    if unknown is not None:
        return Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {unknown}")
    view = context.access
    try:
        await view.confirm()
    except EtcdError:
        return UNREAD
    damage = incomplete("quotas", view.views["quotas"].unreadable)
    if damage is not None:
        return damage
    room = AnswerRoom(context.settings.answer_bytes_max)
    entries = []
    for entity, values in view.stored_quotas():
        parts = _parts(entity)
        if _selects(request, parts):
            if not room.take(ENTRY_BYTES + sum(len((name or "").encode()) for name in parts.values())):
                return Refused(TOO_LARGE, room.refusal)
            entries.append(_entry(parts, values))
    return entries


def _parts(entity: QuotaEntity) -> Parts:
    """In the order of Kafka's answers."""
    named = (("ip", entity.ip), ("client-id", entity.client_id), ("user", entity.user))
    return {kind: None if isinstance(name, Default) else name for kind, name in named if name is not None}


def _selects(request: api.DescribeClientQuotasRequest, parts: Parts) -> bool:
    """Whether the entity has each part that the filter asks for, and, if the filter is strict, no other."""
    if request.strict and len(parts) != len(request.components):
        return False
    return all(
        one.entity_type in parts and (one.match_type == SPECIFIED or parts[one.entity_type] == one.match)
        for one in request.components
    )


def _entry(parts: Parts, values: Mapping[QuotaKey, float]) -> api.DescribeClientQuotasResponseEntry:
    return api.DescribeClientQuotasResponseEntry(
        entity=[
            api.DescribeClientQuotasResponseEntity(entity_type=kind, entity_name=name)
            for kind, name in parts.items()
        ],
        values=[
            api.DescribeClientQuotasResponseValue(key=key.value, value=values[key])
            for key in KEYS
            if key in values
        ],
    )


def wrong_filter(components: Sequence[api.DescribeClientQuotasRequestComponent]) -> str | None:
    """Why Kafka refuses the filter; None if it does not."""
    seen: set[str] = set()
    for one in components:
        if not one.entity_type:
            return "Invalid empty entity type."
        if one.entity_type in seen:
            return f"Entity type {one.entity_type} cannot appear more than once in the filter."
        if one.match_type == EXACT and one.match is None:
            return "Request specified MATCH_TYPE_EXACT, but set match string to null."
        if one.match_type == DEFAULT and one.match is not None:
            return "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."
        if one.match_type == SPECIFIED and one.match is not None:
            return "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."
        if one.match_type not in (EXACT, DEFAULT, SPECIFIED):
            return f"Unknown match type {one.match_type}"
        seen.add(one.entity_type)
    if "ip" in seen and seen & {"user", "client-id"}:
        return (
            "Invalid entity filter component combination; "
            "IP filter component should not be used with user or clientId filter component."
        )
    return None
