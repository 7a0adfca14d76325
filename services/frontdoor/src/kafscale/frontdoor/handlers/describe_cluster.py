"""DescribeCluster (60): v0-2.   v1 endpoint type · v2 fenced brokers
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_cluster as schema

API: Final = Api(
    key=ApiKey.DESCRIBE_CLUSTER,
    versions=(0, 2),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.NOT_CONTROLLER),
    refuse=whole(schema, schema.DescribeClusterResponse),
)
