"""DescribeCluster (60): v0-2.   v1 endpoint type (KIP-919) · v2 fenced brokers (KIP-1073)

The cluster's id, controller and brokers, as in Metadata, for the client's listener. No front door is ever fenced, so
the flag for fenced brokers has no effect. There are no controller endpoints: MISMATCHED_ENDPOINT_TYPE for that type,
and UNSUPPORTED_ENDPOINT_TYPE for an unknown type.
"""

from __future__ import annotations

from enum import IntEnum

from kafscale.access.acl import ResourceType
from kafscale.admin.cluster_view import brokers_of, controller_of
from kafscale.admin.context import AdminContext
from kafscale.admin.plan import Refused
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_cluster as api


class EndpointType(IntEnum):
    BROKERS = 1
    CONTROLLERS = 2


@answering_with_meta(api)
async def handler(
    context: AdminContext, request: api.DescribeClusterRequest, meta: RequestMeta
) -> api.DescribeClusterResponse:
    refused = _wrong_endpoint(request.endpoint_type)
    if refused is not None:
        return api.DescribeClusterResponse(error_code=refused.error, error_message=refused.message)
    brokers = await brokers_of(context, meta.listener)
    answer = api.DescribeClusterResponse(
        cluster_id=context.cluster_id,
        controller_id=controller_of(brokers),
        brokers=[
            api.DescribeClusterResponseBroker(broker_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
            for b in brokers
        ],
    )
    if request.include_cluster_authorized_operations:
        asker = context.authorization.of(meta)
        answer.cluster_authorized_operations = asker.operations(ResourceType.CLUSTER)
    return answer


def _wrong_endpoint(asked: int) -> Refused | None:
    if asked == EndpointType.BROKERS:
        return None
    if asked == EndpointType.CONTROLLERS:
        return Refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    return Refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {asked}")
