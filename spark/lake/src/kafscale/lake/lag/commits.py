"""What consumer groups have committed, as etcd has it. Offsets of topics that are gone are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafscale.lake.catalog import Lake
from kafscale.storage.groups import ClassicGroup, CommittedOffset, GroupState, decode_committed, decode_group
from kafscale.storage.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    group: str
    topic: str
    partition: int
    offset: CommittedOffset


async def read_commits(lake: Lake, topics: Iterable[Topic]) -> list[Commit]:
    """By group, topic and partition."""
    names = {topic.topic_id: topic.name for topic in topics}
    found = await lake.etcd.prefix(lake.keys.commits_prefix())
    commits = []
    for kv in found.kvs:
        _, group, topic_id, partition = lake.keys.parse_committed(kv.key)
        name = names.get(topic_id)
        if name is not None:
            commits.append(
                Commit(group=group, topic=name, partition=partition, offset=decode_committed(kv.value))
            )
    return sorted(commits, key=lambda commit: (commit.group, commit.topic, commit.partition))


async def read_groups(lake: Lake) -> Mapping[str, GroupState]:
    """group id -> its state; a group that only commits offsets by itself has none."""
    found = await lake.etcd.prefix(lake.keys.groups_prefix())
    states = [decode_group(kv.value) for kv in found.kvs]
    return {state.group: state for state in sorted(states, key=lambda state: state.group)}


def state_of(group: GroupState) -> str:
    """The state's name, as far as it is stored: what a coordinator is doing just now is not."""
    if isinstance(group.state, ClassicGroup):
        return group.state.phase.name.lower()
    return "stable" if group.state.members else "empty"
