"""DescribeCluster (60): v0-2.   v1 endpoint type · v2 fenced brokers
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_cluster as schema

API: Final = to_admin(ApiKey.DESCRIBE_CLUSTER, (0, 2), whole(schema, schema.DescribeClusterResponse))
