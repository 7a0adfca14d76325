"""What is known of the logs that are read here: head and meta of each, at the revision that was read. Pure.

Knowledge only grows: a value replaces another of its key only when its revision is higher, and "absent"
is knowledge with a revision too. So a late watch event, a slow refresh and a resumed watch may arrive in
any order, and no reader sees a watermark, an epoch or a log start go back.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Final

from kafscale.fetch.slices import SliceIndex
from kafscale.log.heads import Meta, Seg, decode_head, decode_meta
from kafscale.log.state import LogState
from kafscale.storage.keys import Keyspace, PartitionKey
from kafscale.storage.schema import UnreadableValue

PARTITIONS_MAX: Final = 20_000
EVICTIONS_TRIED_MAX: Final = 64
"""Least lately used partitions looked at to make room for another; those with held requests stay."""
CHANGES_SEARCHED_MAX: Final = 4_096
"""Changed heads that one read of a bundle searches, the newest first. One takes less than a microsecond."""


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
    """One partition. Values are decoded only when a request needs them, and then only what is new: a busy partition's
    head changes far more often than it is read, and each time by one segment."""

    __slots__ = (
        "_current",
        "_state",
        "fetched_ms",
        "head",
        "indexed",
        "meta",
        "read_ms",
        "read_revision",
        "used_ms",
    )

    def __init__(self) -> None:
        self.head = _Cell()
        self.meta = _Cell()
        self.read_revision = 0
        self.read_ms = 0
        self.used_ms = 0
        self.fetched_ms = -1
        self.indexed: tuple[Seg, ...] = ()  # the tail that the index of slices knows
        self._state = EMPTY_LOG
        self._current = False

    def state(self) -> LogState | None:
        if not self._current:
            if not self.head.revision or not self.meta.revision:
                return None
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
    """The partitions that are held, at most `partitions_max` (more only while held requests wait for them), and the
    listeners to their changes. Nothing is learned of a partition that is not held."""

    __slots__ = (
        "_entries",
        "_idle_since_ms",
        "_keyspace",
        "_listeners",
        "_partitions_max",
        "_raw_keys",
        "_slices",
        "_unseen",
    )

    def __init__(self, keyspace: Keyspace, *, partitions_max: int = PARTITIONS_MAX) -> None:
        self._keyspace = keyspace
        self._partitions_max = partitions_max
        self._entries: OrderedDict[PartitionKey, _Entry] = OrderedDict()  # the least lately used first
        self._raw_keys: dict[bytes, tuple[PartitionKey, bool]] = {}  # of heads (True) and metas
        self._listeners: dict[PartitionKey, dict[Listener, None]] = {}  # called in order of arrival
        self._slices: SliceIndex[PartitionKey] = SliceIndex()
        self._unseen: OrderedDict[PartitionKey, None] = OrderedDict()  # see `_changed`; the newest last
        self._idle_since_ms = -1  # what was used up to then is idle

    def __len__(self) -> int:
        return len(self._entries)

    def hold(self, key: PartitionKey, now_ms: int) -> None:
        """From now on the partition's changes are learned."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._add(key)
        else:
            self._entries.move_to_end(key)
        entry.used_ms = now_ms

    def fetched(self, keys: Iterable[PartitionKey], now_ms: int) -> None:
        """A Fetch names these partitions, as far as they are held."""
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None:
                entry.fetched_ms = now_ms

    def state(self, key: PartitionKey) -> LogState | None:
        """The newest knowledge; None until both values of a partition that is held have been read."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._unseen.pop(key, None)
        state = entry.state()
        if state is not None and state.tail is not entry.indexed:
            self._index(key, entry, state.tail)
        return state

    def slices_beside(self, seg: Seg) -> list[Seg]:
        """The slices of the same bundle in the tails of the partitions that consumers read here.

        One bundle changes many partitions, and their requests come one after the other. Some waited for the change,
        others come a little later, when their consumers have taken the answer before. The first of them must find
        the slices of all. A changed head is decoded here only if this bundle's id is in its bytes, or was.
        """
        for key in self._changed_of(seg.bundle):
            with suppress(UnreadableValue):  # the request for it answers that
                self.state(key)
        return self._slices.beside(seg)

    def _changed_of(self, bundle: bytes) -> list[PartitionKey]:
        newest = islice(reversed(self._unseen), CHANGES_SEARCHED_MAX)
        named = [key for key in newest if bundle in (self._entries[key].head.value or b"")]
        return named + [key for key in self._slices.partitions(bundle) if key in self._unseen]

    def _index(self, key: PartitionKey, entry: _Entry, tail: tuple[Seg, ...]) -> None:
        self._slices.replace(key, entry.indexed, tail)
        entry.indexed = tail

    def held(self) -> list[PartitionKey]:
        return list(self._entries)

    def read_revision(self, key: PartitionKey) -> int:
        """The revision of the last linearizable read of the partition; 0: none yet."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.read_revision

    def read_ms(self, key: PartitionKey) -> int:
        """When that read began."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.read_ms

    def learn(self, raw_key: bytes, value: bytes | None, revision: int) -> None:
        """Takes over the value of a key of etcd, if it is the head or meta of a partition that is held."""
        found = self._raw_keys.get(raw_key)
        if found is not None:
            key, is_head = found
            (self.learn_head if is_head else self.learn_meta)(key, value, revision)

    def learn_head(self, key: PartitionKey, value: bytes | None, revision: int) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.head.learn(value, revision):
            self._changed(key, entry)

    def learn_meta(self, key: PartitionKey, value: bytes | None, revision: int) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.meta.learn(value, revision):
            self._changed(key, entry)

    def confirm(self, key: PartitionKey, revision: int, started_ms: int) -> None:
        """A linearizable read that began at `started_ms` saw the key as of `revision`."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.read_revision = max(entry.read_revision, revision)
            entry.read_ms = max(entry.read_ms, started_ms)

    def drop_unused(self, since_ms: int) -> None:
        """Forgets partitions that nothing has used after `since_ms` and no held request waits for."""
        self._idle_since_ms = since_ms
        for key, entry in tuple(self._entries.items()):
            if entry.used_ms <= since_ms and key not in self._listeners:
                self._forget(key)

    def forget_values(self) -> None:
        """What was learned may not be true any more. The partitions stay held."""
        for key in self._entries:
            before = self._entries[key]
            self._index(key, before, ())
            entry = self._entries[key] = _Entry()
            entry.used_ms, entry.fetched_ms = before.used_ms, before.fetched_ms
            self._changed(key, entry)

    def listen(self, keys: Iterable[PartitionKey], listener: Listener) -> None:
        for key in keys:
            self._listeners.setdefault(key, {})[listener] = None

    def unlisten(self, keys: Iterable[PartitionKey], listener: Listener) -> None:
        for key in keys:
            listeners = self._listeners.get(key)
            if listeners is not None:
                listeners.pop(listener, None)
                if not listeners:
                    del self._listeners[key]

    def _add(self, key: PartitionKey) -> _Entry:
        for oldest in list(islice(self._entries, EVICTIONS_TRIED_MAX)):
            if len(self._entries) < self._partitions_max:
                break
            if oldest in self._listeners:
                self._entries.move_to_end(oldest)
            else:
                self._forget(oldest)
        entry = self._entries[key] = _Entry()
        self._raw_keys[self._keyspace.head(*key)] = key, True
        self._raw_keys[self._keyspace.meta(*key)] = key, False
        return entry

    def _forget(self, key: PartitionKey) -> None:
        self._index(key, self._entries.pop(key), ())
        self._unseen.pop(key, None)
        del self._raw_keys[self._keyspace.head(*key)]
        del self._raw_keys[self._keyspace.meta(*key)]

    def _changed(self, key: PartitionKey, entry: _Entry) -> None:
        entry.changed()
        listeners = tuple(self._listeners.get(key, ()))
        # Not what only a monitor asks for: it would be read with every bundle.
        if listeners or entry.fetched_ms > self._idle_since_ms:
            self._unseen[key] = None
            self._unseen.move_to_end(key)
        for listener in listeners:
            listener()
