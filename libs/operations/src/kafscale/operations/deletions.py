"""What a deletion or a reset would do, by Kafka's API: plans that a person sees before it is done. Nothing is changed.

Law: a group that may lose records is in the plan, as far as the login may see groups (`consent.SEEN_BY_CLIENT`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafscale.client.admin_client import Client, KafkaTrouble, before_deletion
from kafscale.client.groups import offsets_to_delete, readers_of
from kafscale.client.topics import TopicPart, bounds_of, find_topics
from kafscale.lake.unread import Going, unread
from kafscale.operations.consent import SEEN_BY_CLIENT, ChangePlan, Row, listed
from kafscale.operations.positions import Log
from kafscale.operations.sentences import counted

RESET_COLUMNS = ("topic", "partition", "before", "after")


def deletion_of_topics(
    client: Client, names: Sequence[str], groups: Collection[str] | None = None
) -> ChangePlan:
    """Raises KafkaTrouble for a topic that does not exist. If the records or the groups cannot be read, the plan says
    so: a damaged topic can be deleted too. `groups`: looks only at these."""

    with before_deletion():
        topics = find_topics(client, names)
    places = [(topic.name, part.id) for topic in topics for part in topic.partitions]
    rows: list[Row] = [
        {"topic": topic.name, "partitions": len(topic.partitions), "records": None} for topic in topics
    ]
    losses: list[Row] | None = None
    try:
        going = bounds_of(client, places)
        for row in rows:
            row["records"] = sum(each.end - each.start for each in going if each.topic == row["topic"])
        losses = unread(going, readers_of(client, places, groups))
        known = counted(sum(row["records"] for row in rows), "record")
    except KafkaTrouble as trouble:
        known = f"records or groups that cannot be read ({trouble})"
    return ChangePlan(
        what=f"{counted(len(names), 'topic')} with {counted(len(places), 'partition')} and {known}",
        question=f"Delete {listed(names)}? This cannot be undone.",
        columns=("topic", "partitions", "records"),
        rows=rows,
        losses=losses,
        nobody=SEEN_BY_CLIENT,
    )


def deletion_of_records(
    client: Client, topic: str, going: Mapping[TopicPart, Log], groups: Collection[str] | None = None
) -> ChangePlan:
    """`records` of a row: the number of offsets. A compacted topic may have fewer records. `groups`: looks only at
    these."""

    parts = [
        Going(topic=topic, partition=number, start=log.start, end=log.at)
        for (_, number), log in going.items()
    ]
    rows: list[Row] = [
        {
            "topic": topic,
            "partition": part.partition,
            "start": part.start,
            "start_after": part.end,
            "records": part.end - part.start,
        }
        for part in parts
    ]
    return ChangePlan(
        what=f"{counted(sum(row['records'] for row in rows), 'record')} of topic '{topic}'",
        question="Delete them? This cannot be undone.",
        columns=("topic", "partition", "start", "start_after", "records"),
        rows=rows,
        losses=unread(parts, readers_of(client, list(going), groups)) if going else [],
        nobody=SEEN_BY_CLIENT,
    )


def deletion_of_groups(client: Client, names: Sequence[str]) -> ChangePlan:
    """Raises KafkaTrouble for a group that does not exist or has members."""
    with before_deletion():
        rows = offsets_to_delete(client, names)
    offsets = sum(row["committed"] is not None for row in rows)
    return ChangePlan(
        what=f"{len(names)} group{'s' * (len(names) != 1)} with {offsets} committed offsets",
        question=f"Delete {listed(names)}? Its consumers then start as those of a new group.",
        columns=("group", "topic", "partition", "committed", "end", "lag"),
        rows=rows,
    )


def reset_of_offsets(group: str, rows: Sequence[Row]) -> ChangePlan:
    """`rows`: of `planned_offsets`, at least one. The group skips what lies between its offset, or the log start,
    and the new offset."""
    going = [
        Going(topic=row["topic"], partition=row["partition"], start=row["start"], end=row["after"])
        for row in rows
    ]
    committed = {row["partition"]: row["before"] for row in rows if row["before"] is not None}
    back = sum(max(0, (row["before"] or 0) - row["after"]) for row in rows)
    topic, places = rows[0]["topic"], f"{len(rows)} partition{'s' * (len(rows) != 1)}"
    if committed:
        what = (
            f"offsets of group '{group}' in {places} of topic '{topic}'; it would read {back:,} records again"
        )
    else:
        what = f"group '{group}' has no offsets in topic '{topic}' yet; it gets them in {places}"
    return ChangePlan(
        what=what,
        question="Reset them?",
        columns=RESET_COLUMNS,
        rows=[{name: row[name] for name in RESET_COLUMNS} for row in rows],
        losses=unread(going, {(group, topic): committed}),
        losing="would skip",
    )
