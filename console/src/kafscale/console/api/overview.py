"""The overview: what the front door says of the cluster in a few requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafscale.access.acl import CLUSTER_NAME, Operation, ResourceType
from kafscale.client.admin_client import ANSWER_TIMEOUT_S, Client
from kafscale.client.groups import list_all_groups
from kafscale.console.answers import Row
from kafscale.console.rights import Admits
from kafscale.console.routes import Call, Route


async def overview(call: Call) -> Row:
    """`describes`: whether this login sees what the services and the stores say, and this console reads them."""
    found: Row = await call.kafka(_overview)
    if call.site.stores is None:
        return found | {"describes": False}
    cluster = await call.seen([CLUSTER_NAME], Operation.DESCRIBE, ResourceType.CLUSTER)
    return found | {"describes": bool(cluster)}


def _overview(client: Client) -> Row:
    """Topics and groups are those that this login may see."""
    with client.failing("the cluster"):
        metadata = client.admin.list_topics(timeout=ANSWER_TIMEOUT_S)
    groups = list_all_groups(client)
    return {
        "cluster_id": metadata.cluster_id,
        "brokers": [
            {"id": each.id, "address": f"{each.host}:{each.port}"} for each in metadata.brokers.values()
        ],
        "topics": len(metadata.topics),
        "partitions": sum(len(topic.partitions) for topic in metadata.topics.values()),
        "groups": len(groups),
        "groups_empty": sum(group["state"].upper() == "EMPTY" for group in groups),
    }


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/overview", handler=overview, needs=Admits.LOGIN),
)
