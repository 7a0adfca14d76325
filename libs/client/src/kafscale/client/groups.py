"""Consumer groups: which exist, how far each has read, deletion, and reset of offsets.

AdminClient does all but the list. Its list omits groups of other protocol types (Kafka Connect's, for example), and has
neither protocol types nor the states of KIP-848. So ListGroups is sent by hand (`admin_client.asked_of_all`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import MemberDescription
from kafscale.client.admin_client import Client, asked, asked_of_all, changing, failure, patiently
from kafscale.client.topics import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    Row,
    TopicPart,
    existing_topics,
    find_topics,
    offsets_at,
)
from kafscale.lake.unread import Readers
from kafscale.runtime.addresses import join_address
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_groups, offset_delete

LIST_GROUPS_VERSION = 5
OFFSET_DELETE_VERSION = 0
CONSUMER = "consumer"
NO_MEMBERS = ("EMPTY", "DEAD")
"""States of a group, in capital letters."""
GROUPS_AT_ONCE = 50


def of_group(name: str) -> str:
    return f"group '{name}'"


def list_all_groups(client: Client) -> list[Row]:
    """By name: group, type, state, protocol. Asks every broker: each lists the groups that it coordinates."""

    def checked() -> list[Row]:
        message = list_groups.ListGroupsRequest(states_filter=[], types_filter=[])
        answers = asked_of_all(client, "the list of groups", list_groups, message, LIST_GROUPS_VERSION)
        for broker, answer in zip(client.brokers, answers, strict=True):
            if answer.error_code != ErrorCode.NONE:
                raise failure(f"the groups of {join_address(*broker)}", answer.error_code)
        return [
            {
                "group": group.group_id,
                "type": group.group_type.lower(),
                "state": group.group_state,
                "protocol": group.protocol_type,
            }
            for answer in answers
            for group in answer.groups
        ]

    found = {row["group"]: row for row in patiently(checked)}
    return [found[name] for name in sorted(found)]


def describe_group(client: Client, name: str) -> list[Row]:
    """A row for each partition that the group has committed to or that one of its members reads."""
    return _described(client, find_groups(client, [name])[name])


def find_groups(client: Client, names: Iterable[str]) -> dict[str, Row]:
    """The rows of `list_all_groups`. Raises KafkaTrouble for a group that does not exist."""
    listed = {row["group"]: row for row in list_all_groups(client)}
    for name in names:
        if name not in listed:
            raise failure(of_group(name), ErrorCode.GROUP_ID_NOT_FOUND)
    return {name: listed[name] for name in names}


def offsets_to_delete(client: Client, names: Sequence[str]) -> list[Row]:
    """The rows of `describe_group` for all of these groups; one without values for a group without offsets.

    Raises KafkaTrouble for a group that does not exist or has members.
    """
    rows: list[Row] = []
    for name, listed in find_groups(client, names).items():
        if listed["state"].upper() not in NO_MEMBERS:
            raise failure(of_group(name), ErrorCode.NON_EMPTY_GROUP)
        nothing = dict.fromkeys(("topic", "partition", "committed", "end", "lag", "stable_end", "stable_lag"))
        rows += _described(client, listed) or [{"group": name, **nothing}]
    return rows


def _described(client: Client, listed: Row) -> list[Row]:
    name = listed["group"]
    readers = _readers(client, name) if listed["protocol"] == CONSUMER else {}
    committed = committed_offsets(client, name)
    places = sorted(committed.keys() | readers.keys())
    # Offsets outlive their topic for a moment.
    topics = existing_topics(client, {topic for topic, _ in places})
    counts = {topic.name: len(topic.partitions) for topic in topics}
    existing = [(topic, partition) for topic, partition in places if partition < counts.get(topic, 0)]
    ends = offsets_at(client, existing, LATEST)
    stable_ends = offsets_at(client, existing, LATEST, IsolationLevel.READ_COMMITTED)
    rows: list[Row] = []
    for place in places:
        end = ends[place].offset if place in ends else None
        stable_end = stable_ends[place].offset if place in stable_ends else None
        at, reader = committed.get(place), readers.get(place)
        rows.append(
            {
                "group": name,
                "state": listed["state"],
                "topic": place[0],
                "partition": place[1],
                "committed": at,
                "end": end,
                "lag": _lag(at, end),
                "stable_end": stable_end,
                "stable_lag": _lag(at, stable_end),
                "member": reader.member_id if reader else None,
                "client": reader.client_id if reader else None,
                "host": reader.host if reader else None,
            }
        )
    return rows


def _lag(at: int | None, end: int | None) -> int | None:
    return None if at is None or end is None else max(end - at, 0)


def _readers(client: Client, name: str) -> dict[TopicPart, MemberDescription]:
    """The member that reads each partition."""
    found = patiently(
        lambda: client.ask_one(of_group(name), lambda: client.admin.describe_consumer_groups([name]))
    )
    return {
        (part.topic, part.partition): member
        for member in found.members
        for part in member.assignment.topic_partitions
    }


def committed_offsets(client: Client, name: str) -> dict[TopicPart, int]:
    """The next offset of each partition for which the group has committed one."""
    return committed_by_group(client, [name])[name]


def readers_of(client: Client, places: Sequence[TopicPart], names: Collection[str] | None = None) -> Readers:
    """The groups that have committed in these partitions, or whose members read their topics. `names`: looks only at
    these; a group that the login may not describe is a failure."""
    groups = [row for row in list_all_groups(client) if names is None or row["group"] in names]
    topics = {topic for topic, _ in places}
    found: dict[tuple[str, str], dict[int, int]] = {}
    for at in range(0, len(groups), GROUPS_AT_ONCE):
        some = groups[at : at + GROUPS_AT_ONCE]
        for name, offsets in committed_by_group(client, [row["group"] for row in some], places).items():
            for (topic, partition), offset in offsets.items():
                found.setdefault((name, topic), {})[partition] = offset
        with_members = [
            row["group"]
            for row in some
            if row["protocol"] == CONSUMER and row["state"].upper() not in NO_MEMBERS
        ]
        for name in with_members:
            for topic, _ in _readers(client, name):
                if topic in topics:
                    found.setdefault((name, topic), {})
    return found


def committed_by_group(
    client: Client, names: Sequence[str], places: Sequence[TopicPart] | None = None
) -> dict[str, dict[TopicPart, int]]:
    """The committed offsets of these groups, in these partitions or in all. The requests are sent at once."""

    def send() -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        parts = None if places is None else [TopicPartition(topic, number) for topic, number in places]
        return {
            name: future
            for name in names
            for future in client.admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name, parts)]
            ).values()
        }

    def ask() -> dict[str, dict[TopicPart, int]]:
        return {name: _offsets(name, found) for name, found in client.ask(of_group, send).items()}

    return patiently(ask)


def _offsets(name: str, found: ConsumerGroupTopicPartitions) -> dict[TopicPart, int]:
    _check(name, found)
    return {
        (part.topic, part.partition): part.offset for part in found.topic_partitions or () if part.offset >= 0
    }


def _check(name: str, answered: ConsumerGroupTopicPartitions) -> None:
    for part in answered.topic_partitions or ():
        if part.error is not None:
            raise failure(of_group(name), part.error.code())


@changing()
def delete_group(client: Client, name: str) -> None:
    patiently(lambda: client.ask_one(of_group(name), lambda: client.admin.delete_consumer_groups([name])))


@changing()
def delete_offsets(client: Client, name: str, places: Iterable[TopicPart]) -> None:
    """The committed offsets of a group in these partitions. The coordinator refuses topics that members subscribe to.
    Raises KafkaTrouble; other partitions may have changed then."""
    topics: dict[str, list[offset_delete.OffsetDeleteRequestPartition]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(offset_delete.OffsetDeleteRequestPartition(partition))
    message = offset_delete.OffsetDeleteRequest(
        group_id=name,
        topics=[offset_delete.OffsetDeleteRequestTopic(topic, parts) for topic, parts in topics.items()],
    )

    def ask() -> None:
        answer = asked(client, of_group(name), offset_delete, message, OFFSET_DELETE_VERSION)
        if answer.error_code != ErrorCode.NONE:
            raise failure(of_group(name), answer.error_code)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code != ErrorCode.NONE:
                    raise failure(f"partition {topic.name}/{part.partition_index}", part.error_code)

    patiently(ask)


def planned_offsets(
    client: Client, name: str, topic: str, partition: int | None, to: int, *, is_time: bool
) -> list[Row]:
    """The offset of the group in each partition: topic, partition, before, after, and the bounds of the log, start
    and end.

    `to` is an offset, which is limited to the log's bounds; or, if `is_time`, a time in ms, EARLIEST or LATEST.
    """
    (found,) = find_topics(client, [topic])
    numbers = sorted(part.id for part in found.partitions)
    places = [(topic, number) for number in numbers if partition is None or number == partition]
    before = committed_offsets(client, name)
    starts = offsets_at(client, places, EARLIEST)
    ends = offsets_at(client, places, LATEST)
    targets = offsets_at(client, places, to) if is_time else {}
    rows: list[Row] = []
    for place in places:
        start, end = starts[place].offset, ends[place].offset
        after = targets[place].offset if place in targets else to
        after = end if after == NO_OFFSET else min(max(after, start), end)
        row = {"topic": topic, "partition": place[1], "before": before.get(place), "after": after}
        rows.append({**row, "start": start, "end": end})
    return rows


@changing()
def commit_offsets(client: Client, name: str, offsets: Mapping[TopicPart, int]) -> None:
    """For a group without members; the coordinator refuses it for others."""

    def send() -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        parts = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        return client.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, parts)])

    patiently(lambda: _check(name, client.ask_one(of_group(name), send)))
