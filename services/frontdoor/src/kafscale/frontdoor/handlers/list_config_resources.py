"""ListConfigResources (74): v0-1.   v0 client metrics alone · v1 types of resources
Admin answers. While none is there: NOT_CONTROLLER.
"""

from typing import Final

from kafscale.frontdoor.api import Api, Backend, Forward
from kafscale.frontdoor.refusals import whole
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_config_resources as schema

API: Final = Api(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    versions=(0, 1),
    backend=Backend.ADMIN,
    dispatch=Forward(unavailable=ErrorCode.NOT_CONTROLLER),
    refuse=whole(schema, schema.ListConfigResourcesResponse),
    large_answer=True,
)
