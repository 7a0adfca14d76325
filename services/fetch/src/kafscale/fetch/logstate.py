"""What is known of each partition's log: head and meta, each at the revision it was read. Pure.

Knowledge only grows: a value replaces another of its key only when its revision is higher, and "absent"
is knowledge with a revision too. So a late watch event, a slow refresh and a resumed watch may arrive in
any order, and no reader sees a watermark, an epoch or a log start go back.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafscale.storage.heads import Head, ManifestRef, Meta, Seg, decode_head, decode_meta
from kafscale.storage.keys import TopicId


class PartitionKey(NamedTuple):
    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """A partition at some revision. Without a head nobody has claimed it yet: an empty log."""

    head: Head | None = None
    meta: Meta = field(default_factory=Meta)

    @property
    def next(self) -> int:
        return 0 if self.head is None else self.head.next

    @property
    def lso(self) -> int:
        return 0 if self.head is None else self.head.lso

    @property
    def log_start(self) -> int:
        return self.meta.log_start

    @property
    def epoch(self) -> int | None:
        return None if self.head is None else self.head.epoch

    @property
    def tail(self) -> tuple[Seg, ...]:
        return () if self.head is None else self.head.tail

    @property
    def tail_start(self) -> int:
        """From here on the tail lists the segments; the manifests list those before."""
        return self.tail[0].base if self.tail else self.next

    @property
    def chunks(self) -> tuple[ManifestRef, ...]:
        return self.meta.chunks

    @property
    def torn(self) -> bool:
        """Head and meta are watched apart, and a checkpoint writes both: while only the head's half has arrived,
        segments are listed in neither. Such a state must not be answered from."""
        return self.tail_start > self.meta.manifest_end


EMPTY_LOG: Final = LogState()


class _Cell:
    """One key of etcd: its value as bytes, None for absent, and the revision of that knowledge."""

    __slots__ = ("revision", "value")

    def __init__(self) -> None:
        self.value: bytes | None = None
        self.revision = 0

    def learn(self, value: bytes | None, revision: int) -> bool:
        if revision <= self.revision:
            return False
        self.revision = revision
        changed = value != self.value
        self.value = value
        return changed


class _Entry:
    """Decoded only when somebody asks, and then only what is new: a busy partition's head changes far
    more often than it is read, and each time by one segment."""

    __slots__ = ("_current", "_state", "head", "meta", "read_ms", "read_revision")

    def __init__(self) -> None:
        self.head = _Cell()
        self.meta = _Cell()
        self.read_revision = 0
        self.read_ms = 0
        self._state = EMPTY_LOG
        self._current = False

    def state(self) -> LogState:
        if not self._current:
            head, meta = self.head.value, self.meta.value
            self._state = LogState(
                head=None if head is None else decode_head(head, self._state.head),
                meta=Meta() if meta is None else decode_meta(meta),
            )
            self._current = True
        return self._state

    def changed(self) -> None:
        self._current = False


Listener = Callable[[], None]


class LogTable:
    """All partitions that are read here, and who wants to hear of their changes."""

    __slots__ = ("_entries", "_listeners")

    def __init__(self) -> None:
        self._entries: dict[PartitionKey, _Entry] = {}
        self._listeners: dict[PartitionKey, set[Listener]] = {}

    def state(self, key: PartitionKey, *, rest_is_absent: bool) -> LogState | None:
        """None: one of its keys is not known yet; `rest_is_absent` when such keys do not exist."""
        entry = self._entries.get(key)
        if entry is None:
            return EMPTY_LOG if rest_is_absent else None
        if not rest_is_absent and not (entry.head.revision and entry.meta.revision):
            return None
        return entry.state()

    def read_revision(self, key: PartitionKey) -> int:
        entry = self._entries.get(key)
        return 0 if entry is None else entry.read_revision

    def read_ms(self, key: PartitionKey) -> int:
        """When the last linearizable read of the key itself began."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.read_ms

    def partitions(self, topic_id: TopicId) -> list[PartitionKey]:
        return [key for key in self._entries if key.topic_id == topic_id]

    def learn_head(self, key: PartitionKey, value: bytes | None, revision: int) -> None:
        entry = self._entry(key)
        if entry.head.learn(value, revision):
            self._changed(key, entry)

    def learn_meta(self, key: PartitionKey, value: bytes | None, revision: int) -> None:
        entry = self._entry(key)
        if entry.meta.learn(value, revision):
            self._changed(key, entry)

    def confirm(self, key: PartitionKey, revision: int, started_ms: int) -> None:
        """A linearizable read that began at `started_ms` saw the key as of `revision`."""
        entry = self._entry(key)
        entry.read_revision = max(entry.read_revision, revision)
        entry.read_ms = max(entry.read_ms, started_ms)

    def forget(self, topic_id: TopicId) -> None:
        for key in self.partitions(topic_id):
            del self._entries[key]

    def listen(self, keys: Iterable[PartitionKey], listener: Listener) -> None:
        for key in keys:
            self._listeners.setdefault(key, set()).add(listener)

    def unlisten(self, keys: Iterable[PartitionKey], listener: Listener) -> None:
        for key in keys:
            listeners = self._listeners.get(key)
            if listeners is not None:
                listeners.discard(listener)
                if not listeners:
                    del self._listeners[key]

    def listened(self, topic_id: TopicId) -> bool:
        return any(key.topic_id == topic_id for key in self._listeners)

    def _entry(self, key: PartitionKey) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
        return entry

    def _changed(self, key: PartitionKey, entry: _Entry) -> None:
        entry.changed()
        for listener in tuple(self._listeners.get(key, ())):
            listener()
