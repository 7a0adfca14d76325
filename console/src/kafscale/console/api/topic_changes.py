"""Creates and deletes topics, adds partitions, alters configs, deletes records. What is deleted is shown before."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Final

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.admin_client import Client
from kafscale.client.groups import list_all_groups
from kafscale.client.topics import (
    add_partitions,
    alter_topic_configs,
    create_topic,
    delete_before,
    delete_topic,
    find_topics,
)
from kafscale.console.answers import Row, bad_request
from kafscale.console.rights import Admits, on_topic
from kafscale.console.routes import Call, Route
from kafscale.operations.consent import ChangePlan
from kafscale.operations.deletions import deletion_of_records, deletion_of_topics
from kafscale.operations.positions import PositionWrong, chosen, located, now_ms, parse_position

PARTITIONS_MAX: Final = 100_000
Count = Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]
Offset = Annotated[int, msgspec.Meta(ge=0)]


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """`partitions` None: the cluster's default."""

    topic: str
    partitions: Count | None = None
    configs: dict[str, str] = {}


class Partitions(msgspec.Struct, forbid_unknown_fields=True):
    """`total`: the new number."""

    total: Count


class Configs(msgspec.Struct, forbid_unknown_fields=True):
    """None: the default again."""

    configs: Annotated[dict[str, str | None], msgspec.Meta(min_length=1, max_length=100)]


class Before(msgspec.Struct, forbid_unknown_fields=True):
    """`before`: a position as `kafscale delete-records` takes it. `partitions` None: all."""

    before: str
    partitions: list[int] | None = None


class NewStarts(msgspec.Struct, forbid_unknown_fields=True):
    """Partitions and their new first offsets, from the preview."""

    starts: Annotated[list[tuple[int, Offset]], msgspec.Meta(min_length=1, max_length=PARTITIONS_MAX)]


async def create(call: Call) -> Row:
    asked: Any = call.body
    return {"partitions": await call.kafka(create_topic, asked.topic, asked.partitions, asked.configs)}


async def partitions(call: Call) -> Row:
    await call.kafka(add_partitions, call.path["topic"], call.body.total)
    return {}


async def configs(call: Call) -> Row:
    await call.kafka(alter_topic_configs, call.path["topic"], call.body.configs)
    return {}


async def deletion(call: Call) -> Row:
    """What goes with the topic: records, and groups that have not read them."""
    return _shown(await call.kafka(deletion_of_topics, [call.path["topic"]], await _groups(call)))


async def delete(call: Call) -> Row:
    await call.kafka(delete_topic, call.path["topic"])
    return {}


async def preview(call: Call) -> Row:
    """The partitions that lose records, and the groups that have not read them."""
    asked: Any = call.body
    groups = await _groups(call)
    try:
        return _shown(await call.kafka(_preview, call.path["topic"], asked.before, asked.partitions, groups))
    except PositionWrong as wrong:
        raise bad_request(str(wrong)) from wrong


async def _groups(call: Call) -> frozenset[str]:
    """Those that this login may describe."""
    return await call.seen_groups([row["group"] for row in await call.kafka(list_all_groups)])


def _preview(
    client: Client, topic: str, before: str, numbers: Sequence[int] | None, groups: Collection[str]
) -> ChangePlan:
    position = parse_position(before, now_ms())
    (found,) = find_topics(client, [topic])
    wanted = chosen(
        topic, (part.id for part in found.partitions), None if numbers is None else frozenset(numbers)
    )
    logs = located(client, [(topic, number) for number in wanted], position)
    return deletion_of_records(
        client, topic, {place: log for place, log in logs.items() if log.at > log.start}, groups
    )


async def delete_records(call: Call) -> Row:
    topic = call.path["topic"]
    await call.kafka(delete_before, {(topic, number): offset for number, offset in call.body.starts})
    return {}


def _shown(plan: ChangePlan) -> Row:
    return {
        "what": plan.what,
        "rows": list(plan.rows),
        "losses": list(plan.losses or ()),
        "facts": plan.facts(),
    }


ROUTES: Final[Sequence[Route]] = (
    Route(method="POST", path="/topics", handler=create, needs=Admits.LOGIN, changes=True, body=NewTopic),
    Route(
        method="POST",
        path="/topics/{topic}/partitions",
        handler=partitions,
        needs=on_topic(Operation.ALTER),
        changes=True,
        body=Partitions,
    ),
    Route(
        method="PATCH",
        path="/topics/{topic}/configs",
        handler=configs,
        needs=on_topic(Operation.ALTER_CONFIGS),
        changes=True,
        body=Configs,
    ),
    Route(
        method="GET", path="/topics/{topic}/deletion", handler=deletion, needs=on_topic(Operation.DESCRIBE)
    ),
    Route(
        method="DELETE",
        path="/topics/{topic}",
        handler=delete,
        needs=on_topic(Operation.DELETE),
        changes=True,
    ),
    Route(
        method="POST",
        path="/topics/{topic}/delete-records/preview",
        handler=preview,
        needs=on_topic(Operation.DESCRIBE),
        body=Before,
    ),
    Route(
        method="POST",
        path="/topics/{topic}/delete-records",
        handler=delete_records,
        needs=on_topic(Operation.DELETE),
        changes=True,
        body=NewStarts,
    ),
)
