"""Where groups are: their committed offsets, and the partitions of their topics in which they have committed none.

A topic is a group's if the group has a committed offset in it, or if a member subscribes to it or owns a partition of
it. Where a group without a committed offset begins is decided by its clients (`auto.offset.reset`), which no server
knows. So such a partition counts as unread from its first record, as a new group reads it, and it is never judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kafscale.lake.catalog import Lake
from kafscale.lake.lag.commits import Commit, Position, read_commits, read_groups
from kafscale.lake.lag.owners import owners, subscriptions
from kafscale.lake.unread import Readers
from kafscale.storage.groups import GroupState
from kafscale.storage.topics import Topic


def positions(
    commits: Iterable[Commit], groups: Mapping[str, GroupState], topics: Sequence[Topic]
) -> list[Position]:
    """By group, topic and partition. Every commit is in it."""
    counts = {topic.name: topic.partitions for topic in topics}
    found: dict[tuple[str, str, int], Position] = {}
    wanted = {(group, name) for group, state in groups.items() for name in subscriptions(state)}
    wanted |= {(group, name) for group, name, _ in owners(groups.values(), topics)}
    for commit in commits:
        wanted.add((commit.group, commit.topic))
        found[commit.group, commit.topic, commit.partition] = commit
    for group, name in wanted:
        for partition in range(counts.get(name, 0)):
            place = group, name, partition
            found.setdefault(place, Position(group=group, topic=name, partition=partition))
    return [found[place] for place in sorted(found)]


async def read_positions(
    lake: Lake, topics: Sequence[Topic]
) -> tuple[list[Position], Mapping[str, GroupState]]:
    """And the groups that were read for them. Raises EtcdError."""
    groups = await read_groups(lake)
    return positions(await read_commits(lake, topics), groups, topics), groups


async def read_readers(lake: Lake, topics: Sequence[Topic]) -> Readers:
    """The groups whose topics these are, with what they have committed. Raises EtcdError."""
    names = {topic.name for topic in topics}
    found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for each in (await read_positions(lake, topics))[0]:
        if each.topic in names:
            readers = found[each.group, each.topic]
            if each.offset is not None:
                readers[each.partition] = each.offset.offset
    return found
