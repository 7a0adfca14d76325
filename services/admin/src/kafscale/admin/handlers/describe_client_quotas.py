"""DescribeClientQuotas (48): v0-1.   v1 flexible (KIP-546)

No quota can be set, so none is listed, as a Kafka broker answers while none is set. A filter that Kafka refuses is
refused with Kafka's own message: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.admin.context import AdminContext
from kafscale.runtime.stream.apis import answering
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_client_quotas as api

EXACT, DEFAULT, SPECIFIED = range(3)


@answering(api)
async def handler(
    _: AdminContext, request: api.DescribeClientQuotasRequest
) -> api.DescribeClientQuotasResponse:
    wrong = wrong_filter(request.components)
    if wrong is not None:
        code = ErrorCode.INVALID_REQUEST
        return api.DescribeClientQuotasResponse(error_code=code, error_message=wrong, entries=None)
    return api.DescribeClientQuotasResponse(error_message=None, entries=[])


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
