"""Consumer groups: the list by risk, one group, the deletion of a group or of its offsets. The reset: `group_reset.py`.

Law: a login sees the groups and topics that the front door lets it describe, and every sum is of those alone. So the
process that makes reports gets both lists with each request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from kafscale.access.acl import Operation
from kafscale.client.admin_client import Client
from kafscale.client.groups import (
    NO_MEMBERS,
    committed_by_group,
    delete_group,
    delete_offsets,
    describe_group,
    find_groups,
    list_all_groups,
)
from kafscale.client.topics import LATEST, existing_topics, offsets_at, topic_names
from kafscale.console.answers import Row, bad_request, page_of
from kafscale.console.direct.lag import NONE_YET
from kafscale.console.rights import Admits, on_group
from kafscale.console.routes import Call, Route

COLUMNS: Final = (
    "risk", "group", "records", "time_ms", "trend_1h_per_s", "eta_ms", "expires_in_ms", "members", "lost", "state",
)  # fmt: skip
NOTHING_KNOWN: Final = (
    "status", "life", "members", "partitions", "records", "stable_records", "bytes", "time_ms", "lost", "at_risk",
    "expires_in_ms", "eta_ms", "trend_1h_per_s", "uncommitted", "uncommitted_records", "line",
)  # fmt: skip
KNOWN_OF_PARTITION: Final = ("topic", "partition", "committed", "stable_end", "member", "client", "host")
UNKNOWN_OF_PARTITION: Final = (
    "status", "time_ms", "bytes", "lost", "expires_in_ms", "eta_ms", "consume_per_s", "produce_per_s", "line",
)  # fmt: skip
TROUBLES: Final = frozenset({"ERR", "REPLACED", "AHEAD", "LOST"})
PLACES_MAX: Final = 50_000

SHOWN: Final[Mapping[str, Callable[[Row], bool]]] = {
    "risk": lambda row: bool(row["at_risk"]) and not row["lost"],
    "lost": lambda row: bool(row["lost"]),
    "stopped": lambda row: "STOP" in row["statuses"],
    "empty": lambda row: row["state"].upper() == "EMPTY",
    "dead": lambda row: row["life"] == "dead",
}
"""The filters of the list. The first is for groups that can still be helped."""


@dataclass(frozen=True, slots=True)
class Seen:
    """`listed`: the rows of all groups that the front door lists. `groups` and `topics`: those that the login may
    describe."""

    listed: Sequence[Row]
    groups: Collection[str]
    topics: Collection[str]


async def seen_by(call: Call) -> Seen:
    """Raises Problem."""
    listed, topics = await call.kafka(lambda client: (list_all_groups(client), topic_names(client)))
    groups = await call.seen_groups([row["group"] for row in listed])
    return Seen(listed, groups, frozenset(topics))


def _read(call: Call) -> dict[str, str] | None:
    """For the audit log: which groups' lag was read from etcd and the store."""
    if call.site.stores is None:
        return None
    asked = {"group": call.path.get("group"), "topic": call.query.get("topic")}
    return {name: value for name, value in asked.items() if value is not None}


async def groups(call: Call) -> Row:
    """The groups, worst first. With `topic` only those that read it. Without etcd and the store only the records that
    the page's groups have not read are known."""
    show, topic = call.query.get("show", ""), call.query.get("topic")
    if show and show not in SHOWN:
        raise bad_request(f"show is one of {', '.join(SHOWN)}")
    seen = await seen_by(call)
    report = NONE_YET if call.site.stores is None else await call.stores.lag.ask(seen.groups, seen.topics)
    rows = merged(seen.listed, report["groups"])
    if topic is not None:
        rows = [row for row in rows if topic in row["topics"]]
    counts = {name: sum(map(fits, rows)) for name, fits in SHOWN.items()}
    chosen = [row for row in rows if not show or SHOWN[show](row)]
    query = {"sort": "group" if call.site.stores is None else "-risk"} | dict(call.query)
    page = page_of(chosen, query, columns=COLUMNS, search="group")
    if call.site.stores is None:
        names = [row["group"] for row in page["items"] if row["group"] in seen.groups]
        known = await call.kafka(unread_by_group, names)
        page["items"] = [row | known.get(row["group"], {}) for row in page["items"]]
    about = {name: report[name] for name in ("at_ms", "history_ms", "trouble", "making")}
    return page | about | {"counts": counts, "all": len(rows)}


def merged(listed: Sequence[Row], reported: Sequence[Row]) -> list[Row]:
    """Each listed group with what the report says of it; pure. `risk` is the order: what lost records, what will lose
    them next, what has another trouble, what is farthest behind."""
    known = {row["group"]: row for row in reported}
    nothing: Row = dict.fromkeys(NOTHING_KNOWN) | {"topics": [], "statuses": []}
    rows = [nothing | known.get(row["group"], {}) | row for row in listed]
    return [row | {"risk": _risk(row)} for row in rows]


def _risk(row: Row) -> tuple[bool, bool, float, bool, int]:
    left_ms = row["expires_in_ms"]
    at_risk = bool(row["at_risk"])
    soon = 1 / (1 + left_ms) if at_risk and left_ms is not None else 0.0
    return bool(row["lost"]), at_risk, soon, row["status"] in TROUBLES, row["time_ms"] or 0


def unread_by_group(client: Client, names: Sequence[str]) -> dict[str, Row]:
    """By Kafka's API alone: topics, partitions, and records between the committed offset and the end."""
    committed = committed_by_group(client, names)
    places = {place for offsets in committed.values() for place in offsets}
    topics = existing_topics(client, {topic for topic, _ in places})
    counts = {topic.name: len(topic.partitions) for topic in topics}
    ends = offsets_at(client, [place for place in places if place[1] < counts.get(place[0], 0)], LATEST)
    return {
        name: {
            "topics": sorted({topic for topic, _ in offsets}),
            "partitions": len(offsets),
            "records": sum(max(0, ends[place].offset - at) for place, at in offsets.items() if place in ends),
        }
        for name, offsets in committed.items()
    }


async def group(call: Call) -> Row:
    """Its row, its partitions, and the history of its unread records."""
    name = call.path["group"]
    seen = await seen_by(call)
    listed = (await call.kafka(find_groups, [name]))[name]
    if call.site.stores is None:
        report = NONE_YET | {"partitions": await call.kafka(_described, name)}
    else:
        report = await call.stores.lag.ask(seen.groups, seen.topics, name)
    (row,) = merged([listed], report["groups"])
    shown = ("at_ms", "history_ms", "trouble", "making", "partitions", "history")
    empty = listed["state"].upper() in NO_MEMBERS
    return {key: report[key] for key in shown} | {"group": row, "empty": empty}


def _described(client: Client, name: str) -> list[Row]:
    """Rows with the names of the report, as far as Kafka's API knows."""
    return [
        dict.fromkeys(UNKNOWN_OF_PARTITION)
        | {
            "records": row["lag"],
            "stable_records": row["stable_lag"],
            "log_end": row["end"],
            "at_risk": False,
        }
        | {name: row[name] for name in KNOWN_OF_PARTITION}
        for row in describe_group(client, name)
    ]


class Places(msgspec.Struct, forbid_unknown_fields=True):
    """Topics and partitions."""

    places: list[tuple[str, int]]


async def remove_offsets(call: Call) -> Row:
    """Answers with the offsets that the group has afterwards."""
    asked: Any = call.body
    if not 0 < len(asked.places) <= PLACES_MAX:
        raise bad_request(f"name 1 to {PLACES_MAX:,} partitions")
    name = call.path["group"]
    await call.kafka(delete_offsets, name, asked.places)
    left = (await call.kafka(committed_by_group, [name]))[name]
    return {"left": [[topic, number, offset] for (topic, number), offset in sorted(left.items())]}


async def remove_group(call: Call) -> Row:
    await call.kafka(delete_group, call.path["group"])
    return {}


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/groups", handler=groups, needs=Admits.LOGIN, audit=_read),
    Route(
        method="GET",
        path="/groups/{group}",
        handler=group,
        needs=on_group(Operation.DESCRIBE),
        audit=_read,
    ),
    Route(
        method="DELETE",
        path="/groups/{group}",
        handler=remove_group,
        needs=on_group(Operation.DELETE),
        changes=True,
    ),
    Route(
        method="DELETE",
        path="/groups/{group}/offsets",
        handler=remove_offsets,
        needs=on_group(Operation.DELETE),
        changes=True,
        body=Places,
    ),
)
