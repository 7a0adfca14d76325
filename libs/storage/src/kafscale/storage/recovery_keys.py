"""Keys and object names that only backup and recovery need: what leads from a name back to a partition. Pure.

    {namespace}/@kafscale/deleted/{day}/{topic_id}   the topic was deleted; the content is its name
    .kafscale-backup/{namespace}/etcd/{time}/…       snapshots of etcd; the time is in UTC, as in 20261126T101500Z

Both are objects. A recovery from the bucket or from an old snapshot of etcd must not bring a deleted topic back, and
nothing else in the bucket distinguishes such a topic from one whose heads were lost. Snapshots are in no namespace:
they hold what users' passwords are checked with, and every service may read its namespace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final
from urllib.parse import unquote

from kafscale.storage.keys import OWN_TREE, Keyspace, TopicId, UnknownKey

_OWN_OBJECT: Final = re.compile(
    r"(?P<folder>manifest|producers|compacted)/(?P<topic>[0-9a-f]{32})/(?P<partition>\d{1,10})/"
    r"(?P<offset>\d{20})-[0-9a-f]+\.(?P<kind>mf|ps|kfs)"
)
_DELETED: Final = re.compile(r"deleted/(\d{8})/([0-9a-f]{32})")
_DAY: Final = "%Y%m%d"
_TIME: Final = "%Y%m%dT%H%M%SZ"
BACKUP_PREFIX: Final = ".kafscale-backup/"


class OwnKind(Enum):
    """Objects of a partition with unique names."""

    MANIFEST = "mf"
    SNAPSHOT = "ps"
    COMPACTED = "kfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnObject:
    """The parts of such a name. `offset`: a snapshot's end, else the first offset."""

    kind: OwnKind
    topic_id: TopicId
    partition: int
    offset: int


def parse_own_object(keys: Keyspace, key: str) -> OwnObject | None:
    """None if the object is no manifest, producer snapshot or compacted segment of this namespace."""
    found = _OWN_OBJECT.fullmatch(_own(keys, key))
    if found is None:
        return None
    return OwnObject(
        kind=OwnKind(found["kind"]),
        topic_id=TopicId(bytes.fromhex(found["topic"])),
        partition=int(found["partition"]),
        offset=int(found["offset"]),
    )


def deletion_mark(keys: Keyspace, topic_id: TopicId, at_ms: int) -> str:
    """The day in the name shows without a request which marks are old."""
    day = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{deletion_marks_prefix(keys)}{day:{_DAY}}/{topic_id.hex()}"


def deletion_marks_prefix(keys: Keyspace) -> str:
    return f"{keys.namespace}/{OWN_TREE}/deleted/"


def parse_deletion_mark(keys: Keyspace, key: str) -> tuple[TopicId, int] | None:
    """The topic, and the beginning of the day in ms. None if the object is no mark."""
    found = _DELETED.fullmatch(_own(keys, key))
    if found is None:
        return None
    day = _time_ms(found[1], _DAY)
    return None if day is None else (TopicId(bytes.fromhex(found[2])), day)


def backups_prefix(keys: Keyspace) -> str:
    return f"{BACKUP_PREFIX}{keys.namespace}/etcd/"


def backup_folder(keys: Keyspace, at_ms: int) -> str:
    """Ends in a slash. The resolution is a second."""
    return f"{backups_prefix(keys)}{datetime.fromtimestamp(at_ms // 1000, UTC):{_TIME}}/"


def parse_backup_time_ms(name: str) -> int | None:
    """From the name of a folder of `backups_prefix`. None if it is no time."""
    return _time_ms(name, _TIME)


def _time_ms(text: str, form: str) -> int | None:
    try:
        return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return None


def epoch_floors_prefix(keys: Keyspace) -> bytes:
    return keys.root() + b"e/"


def parse_epoch_floor(keys: Keyspace, key: bytes) -> str:
    """The topic's name. Raises UnknownKey."""
    prefix = epoch_floors_prefix(keys)
    if not key.startswith(prefix):
        raise UnknownKey(key)
    return unquote(key[len(prefix) :].decode(errors="replace"))


def parse_meta(keys: Keyspace, key: bytes) -> tuple[TopicId, int]:
    """Raises UnknownKey."""
    prefix = keys.metas_prefix()
    if not key.startswith(prefix):
        raise UnknownKey(key)
    return keys.parse_head(keys.heads_prefix() + key[len(prefix) :])


def _own(keys: Keyspace, key: str) -> str:
    """The part below KafScale's own tree, or "" if the key is elsewhere."""
    prefix = f"{keys.namespace}/{OWN_TREE}/"
    return key[len(prefix) :] if key.startswith(prefix) else ""
