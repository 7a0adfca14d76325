"""ListConfigResources (74): v0-1.   v0 client metrics alone · v1 types of resources
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import to_admin
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import list_config_resources as schema

API: Final = to_admin(
    ApiKey.LIST_CONFIG_RESOURCES, (0, 1), whole(schema, schema.ListConfigResourcesResponse), large_answer=True
)
