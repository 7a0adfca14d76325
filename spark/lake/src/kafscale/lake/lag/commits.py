"""What consumer groups have committed, as etcd has it. Offsets of topics that are gone are left out."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafscale.lake.catalog import Lake
from kafscale.lake.lag.owners import owners
from kafscale.lake.unread import Readers
from kafscale.storage.consumer_groups import KEYS_PER_PAGE, stored_groups
from kafscale.storage.etcd.client import KeyValue
from kafscale.storage.groups import ClassicGroup, CommittedOffset, GroupState, decode_committed
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    group: str
    topic: str
    partition: int
    offset: CommittedOffset


async def read_commits(lake: Lake, topics: Iterable[Topic]) -> list[Commit]:
    """By group, topic and partition. What cannot be read is left out and logged."""
    names = {topic.topic_id: topic.name for topic in topics}
    found = await lake.etcd.prefix(lake.keys.commits_prefix())
    commits = []
    for kv in found.kvs:
        try:
            _, group, topic_id, partition = lake.keys.parse_committed(kv.key)
            name = names.get(topic_id)
            if name is not None:
                offset = decode_committed(kv.value)
                commits.append(Commit(group=group, topic=name, partition=partition, offset=offset))
        except UnreadableValue as error:
            log.error("committed offset skipped: %r: %s", kv.key, error)
    return sorted(commits, key=lambda commit: (commit.group, commit.topic, commit.partition))


async def read_groups(lake: Lake) -> Mapping[str, GroupState]:
    """group id -> its state; a group that only commits offsets by itself has none, and neither has one that cannot be
    read, which is named in the log."""
    found = await lake.etcd.prefix(lake.keys.groups_prefix(), page_keys=KEYS_PER_PAGE)
    states = {}
    for name, group in sorted(stored_groups(lake.keys, found.kvs, _pass_over).items()):
        if group.record is None:
            continue
        try:
            states[name] = group.assembled()
        except UnreadableValue as error:
            _pass_over(group.record, error)
    return states


async def read_readers(lake: Lake, topics: Sequence[Topic]) -> Readers:
    """The groups that have committed in these topics, or whose members read them. Raises EtcdError."""
    found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for commit in await read_commits(lake, topics):
        found[commit.group, commit.topic][commit.partition] = commit.offset.offset
    names = {topic.name for topic in topics}
    for group, topic, _ in owners((await read_groups(lake)).values(), topics):
        if topic in names:
            found.setdefault((group, topic), {})
    return found


def _pass_over(kv: KeyValue, error: Exception) -> None:
    log.error("group skipped: %r: %s", kv.key, error)


def state_of(group: GroupState) -> str:
    """The state's name, as far as it is stored: what a coordinator is doing just now is not."""
    if isinstance(group.state, ClassicGroup):
        return group.state.phase.name.lower()
    return "stable" if group.state.members else "empty"
