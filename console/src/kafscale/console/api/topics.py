"""Topics, their partitions and their configs. The pattern for other screens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafscale.access.acl import Operation
from kafscale.client.admin_client import ANSWER_TIMEOUT_S, Client
from kafscale.client.topics import bounds_of, describe_topic_configs, describe_topics
from kafscale.console.answers import Row, page_of
from kafscale.console.rights import Admits, on_topic
from kafscale.console.routes import Call, Route

INTERNAL: Final = "_"
"""Topics whose names begin so are not shown at first."""


async def topics(call: Call) -> Row:
    """The topics that this login may see. Only those of the page are asked for their offsets."""
    rows = await call.kafka(_topic_rows)
    page = page_of(
        rows,
        call.query,
        columns=("topic", "partitions"),
        search="topic",
        hidden=lambda row: row["topic"].startswith(INTERNAL),
    )
    records = await call.kafka(_records_of, page["items"])
    return page | {"items": [row | {"records": records.get(row["topic"])} for row in page["items"]]}


def _topic_rows(client: Client) -> list[Row]:
    with client.failing("the list of topics"):
        found = client.admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    return [{"topic": name, "partitions": len(topic.partitions)} for name, topic in found.items()]


def _records_of(client: Client, rows: Sequence[Row]) -> dict[str, int]:
    """Offsets between the start and the end. Compaction and transactions leave gaps, so it is an upper bound."""
    places = [(row["topic"], number) for row in rows for number in range(row["partitions"])]
    found: dict[str, int] = {}
    for bounds in bounds_of(client, places):
        found[bounds.topic] = found.get(bounds.topic, 0) + bounds.end - bounds.start
    return found


async def topic(call: Call) -> Row:
    """Its partitions, each with its first offset and its end."""
    name = call.path["topic"]
    return {"topic": name, "partitions": await call.kafka(describe_topics, [name])}


async def configs(call: Call) -> Row:
    return {"items": await call.kafka(describe_topic_configs, call.path["topic"])}


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/topics", handler=topics, needs=Admits.LOGIN),
    Route(method="GET", path="/topics/{topic}", handler=topic, needs=on_topic(Operation.DESCRIBE)),
    Route(
        method="GET",
        path="/topics/{topic}/configs",
        handler=configs,
        needs=on_topic(Operation.DESCRIBE_CONFIGS),
    ),
)
