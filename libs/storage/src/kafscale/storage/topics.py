"""Topics as etcd stores them, and every service's view of them.

A topic's record has only the configs that were set; the defaults are Kafka's, and are listed here once. A view watches
all topics, so running services see a change of a config. A topic that is being deleted stays in the view, with its
state, until its name is free.

A record that cannot be read is not absent: its topic is not served, its name is not free, and what belongs to it
(offsets of groups, objects) must not be treated as a deleted topic's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter

from kafscale.storage.etcd.client import EtcdClient, EtcdError, KeyValue
from kafscale.storage.keys import TOPIC_ID_BYTES, Keyspace, TopicId, UnknownKey
from kafscale.storage.schema import SCHEMA, CorruptValue, parse_value
from kafscale.storage.views import PrefixView
from kafscale.store.v1 import store_pb2

log = logging.getLogger(__name__)

READ_TIMEOUT_S = 1.0
READ_PAUSE_S = 0.05
"""Between two reads of all topics for `confirm`: clients that repeat a wrong name cost etcd no more than that."""

REPLICATION_MAX = 3
DEFAULT_REPLICATION = 1
DEFAULT_MIN_INSYNC_REPLICAS = 1
DEFAULT_RETENTION_MS = 604_800_000
DEFAULT_RETENTION_BYTES = -1
DEFAULT_SEGMENT_BYTES = 1_073_741_824
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
DEFAULT_CLEANUP_POLICY = "delete"
DEFAULT_TIMESTAMP_TYPE = "CreateTime"
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000
DEFAULT_TIMESTAMP_BEFORE_MAX_MS = (1 << 63) - 1
DEFAULT_COMPRESSION_TYPE = "producer"
DEFAULT_COMPRESSION_LEVELS = {"gzip": -1, "lz4": 9, "zstd": 3}
UNCOMPRESSED = "uncompressed"
COMPRESSION_TYPES = (DEFAULT_COMPRESSION_TYPE, UNCOMPRESSED, "gzip", "snappy", "lz4", "zstd")
DEFAULT_DELETE_RETENTION_MS = 86_400_000
DEFAULT_DIRTY_RATIO_MIN = 0.5
DEFAULT_MIN_COMPACTION_LAG_MS = 0
DEFAULT_MAX_COMPACTION_LAG_MS = (1 << 63) - 1
INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
DEFAULT_LINGER_MS = -1  # no linger of its own
LOG_APPEND_TIME = "LogAppendTime"
COMPACT = "compact"
DELETE = "delete"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Names that Kafka keeps for its own state (`Topic.isInternal`), which is in etcd here. No client may create these
topics or write to them: a program that reads Kafka's state from them would find nothing, and would not notice it."""


class TopicState(Enum):
    ACTIVE = store_pb2.TopicConfig.ACTIVE
    DELETING = store_pb2.TopicConfig.DELETING


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    topic_id: TopicId
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 0
    """That the client asked for when it created the topic; 0: it left it to the server."""
    state: TopicState = TopicState.ACTIVE
    epoch_floor: int = 0
    created_ms: int = 0
    config_version: int = 0
    mod_revision: int = 0

    @property
    def replicas(self) -> int:
        """How many replicas of each partition clients see (docs/adr/0017-replication-factor.md). At least as many as
        must be in sync, so that no tool reports a partition for it."""
        wanted = max(self.replication_factor or DEFAULT_REPLICATION, self.min_insync_replicas)
        return min(wanted, REPLICATION_MAX)

    @property
    def min_insync_replicas(self) -> int:
        return int(self.configs.get("min.insync.replicas", DEFAULT_MIN_INSYNC_REPLICAS))

    @property
    def first_epoch(self) -> int:
        """The leader epoch of each partition's first owner. It is above those of earlier topics with this name."""
        return self.epoch_floor + 1

    @property
    def retention_ms(self) -> int:
        return int(self.configs.get("retention.ms", DEFAULT_RETENTION_MS))

    @property
    def retention_bytes(self) -> int:
        return int(self.configs.get("retention.bytes", DEFAULT_RETENTION_BYTES))

    @property
    def segment_bytes(self) -> int:
        chosen = self.configs.get("segment.bytes", DEFAULT_SEGMENT_BYTES)
        return int(self.configs.get(INTERNAL_SEGMENT_BYTES, chosen))

    @property
    def max_message_bytes(self) -> int:
        return int(self.configs.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES))

    @property
    def cleanup_policy(self) -> str:
        return self.configs.get("cleanup.policy", DEFAULT_CLEANUP_POLICY)

    @property
    def is_compacted(self) -> bool:
        """Compaction keeps the newest record of each key, so every record must have a key."""
        return COMPACT in self.cleanup_policy

    @property
    def deletes_records(self) -> bool:
        """Records are deleted by time, by size or on request. Otherwise only compaction removes records."""
        return DELETE in self.cleanup_policy

    @property
    def delete_retention_ms(self) -> int:
        """How long compaction keeps a record that deletes its key."""
        return int(self.configs.get("delete.retention.ms", DEFAULT_DELETE_RETENTION_MS))

    @property
    def dirty_ratio_min(self) -> float:
        """A log is compacted when more than this share of its bytes has not been compacted."""
        return float(self.configs.get("min.cleanable.dirty.ratio", DEFAULT_DIRTY_RATIO_MIN))

    @property
    def min_compaction_lag_ms(self) -> int:
        return int(self.configs.get("min.compaction.lag.ms", DEFAULT_MIN_COMPACTION_LAG_MS))

    @property
    def max_compaction_lag_ms(self) -> int:
        return int(self.configs.get("max.compaction.lag.ms", DEFAULT_MAX_COMPACTION_LAG_MS))

    @property
    def takes_append_time(self) -> bool:
        return self.configs.get("message.timestamp.type", DEFAULT_TIMESTAMP_TYPE) == LOG_APPEND_TIME

    @property
    def timestamp_after_max_ms(self) -> int:
        """How far in the future a record's time may be."""
        return int(self.configs.get("message.timestamp.after.max.ms", DEFAULT_TIMESTAMP_AFTER_MAX_MS))

    @property
    def timestamp_before_max_ms(self) -> int:
        """How far in the past."""
        return int(self.configs.get("message.timestamp.before.max.ms", DEFAULT_TIMESTAMP_BEFORE_MAX_MS))

    @property
    def compression(self) -> tuple[str, int | None] | None:
        """The codec that batches are stored in, and its level where it has levels. None: the producer's."""
        codec = self.configs.get("compression.type", DEFAULT_COMPRESSION_TYPE)
        if codec == DEFAULT_COMPRESSION_TYPE:
            return None
        level = DEFAULT_COMPRESSION_LEVELS.get(codec)
        return codec, None if level is None else int(self.configs.get(f"compression.{codec}.level", level))

    @property
    def linger_ms(self) -> int:
        """How long its records are kept out of bundles, to gather; 0: it has no linger of its own."""
        return max(0, int(self.configs.get("kafscale.linger.ms", DEFAULT_LINGER_MS)))


def encode_topic(topic: Topic) -> bytes:
    record = store_pb2.TopicConfig(
        schema=SCHEMA,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        segment_bytes=topic.segment_bytes,
        created_at=topic.created_ms,
        config_version=topic.config_version,
        epoch_floor=topic.epoch_floor,
        state=topic.state.name,
        configs=dict(topic.configs),
        replication_factor=topic.replication_factor,
    )
    return record.SerializeToString(deterministic=True)


def decode_topic(name: str, value: bytes, mod_revision: int = 0) -> Topic:
    """Raises UnreadableValue, also for numeric configs whose value is not a number."""
    kind = f"record of topic {name!r}"
    record = store_pb2.TopicConfig()
    parse_value(record, value, kind)
    if len(record.topic_id) != TOPIC_ID_BYTES or record.partitions < 1:
        raise CorruptValue(kind, f"{len(record.topic_id)} bytes of id, {record.partitions} partitions")
    try:
        topic = Topic(
            name=name,
            topic_id=TopicId(record.topic_id),
            partitions=record.partitions,
            configs=dict(record.configs),
            replication_factor=record.replication_factor,
            state=TopicState(record.state),
            epoch_floor=record.epoch_floor,
            created_ms=record.created_at,
            config_version=record.config_version,
            mod_revision=mod_revision,
        )
        _NUMBERS(topic)
    except ValueError as error:
        raise CorruptValue(kind, str(error)) from error
    return topic


_NUMBERS = attrgetter(
    "retention_ms",
    "retention_bytes",
    "segment_bytes",
    "max_message_bytes",
    "timestamp_after_max_ms",
    "timestamp_before_max_ms",
    "delete_retention_ms",
    "dirty_ratio_min",
    "min_compaction_lag_ms",
    "max_compaction_lag_ms",
    "linger_ms",
    "min_insync_replicas",
)


class TopicsView:
    """All topics by name and by id. `run` it in a task and wait for `ready`.

    The watch may lag, so the view may lack a topic that another service has already shown to a client. A service that
    is about to answer "unknown topic" calls `confirm` or `confirmed` first, and looks into the view again afterwards.
    """

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self._listeners: list[Callable[[str, Topic | None], None]] = []
        self.view: PrefixView[Topic] = PrefixView(etcd, keyspace.topics_prefix(), self._decode)
        self.view.subscribe(self._changed)
        self._asked = asyncio.Event()
        self._waiting: list[Callable[[bool], None]] = []
        self._reading = False
        self._read_s = float("-inf")

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.view.run())
            tasks.create_task(self._confirm_when_asked())

    async def ready(self) -> None:
        await self.view.ready()

    async def refresh(self) -> None:
        """After this, the view holds at least what was committed when it was called."""
        await self.view.refresh()

    async def wait_revision(self, revision: int, timeout_s: float) -> bool:
        return await self.view.wait_revision(revision, timeout_s)

    def by_name(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: TopicId | bytes) -> Topic | None:
        return self._by_id.get(TopicId(topic_id))

    def find(self, ref: str | bytes, partition: int = 0) -> Topic | None:
        """The active topic of this name or id, if it has the partition, as far as the view knows."""
        topic = self._by_name.get(ref) if isinstance(ref, str) else self._by_id.get(TopicId(ref))
        if topic is None or topic.state is not TopicState.ACTIVE:
            return None
        return topic if 0 <= partition < topic.partitions else None

    def confirm(self, then: Callable[[bool], None], *, recent_s: float = 0.0) -> None:
        """Calls `then(True)` when all topics were read from etcd after this call: then the view lacks only what does
        not exist. Calls `then(False)` if etcd did not answer within READ_TIMEOUT_S.

        One read at a time serves all calls that came before it began, in their order. A read that ended less than
        `recent_s` ago is enough; then `then` is called at once.
        """
        ended_ago_s = asyncio.get_running_loop().time() - self._read_s
        if ended_ago_s < recent_s and not self._reading and not self._waiting:
            then(True)
            return
        self._waiting.append(then)
        self._asked.set()

    async def confirmed(self, *, recent_s: float = 0.0) -> bool:
        """`confirm` for callers that can wait."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.confirm(lambda known: None if answer.done() else answer.set_result(known), recent_s=recent_s)
        return await answer

    def all(self) -> tuple[Topic, ...]:
        return tuple(self._by_name.values())

    def is_damaged(self, name: str) -> bool:
        """The topic exists, and its record cannot be read."""
        return bool(self.view.unreadable) and self._keyspace.topic(name) in self.view.unreadable

    def damaged(self) -> tuple[str, ...]:
        """The names of all topics whose record cannot be read."""
        names: list[str] = []
        for key in self.view.unreadable:
            with suppress(UnknownKey):
                names.append(self._keyspace.parse_topic(key))
        return tuple(names)

    def subscribe(self, listener: Callable[[str, Topic | None], None]) -> Callable[[], None]:
        """`listener(name, topic)` after each change; None when the topic is gone, or damaged."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def _confirm_when_asked(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            waiting, self._waiting = self._waiting, []
            self._reading = True
            known = await self._read()
            self._reading = False
            for then in waiting:
                then(known)
            await asyncio.sleep(READ_PAUSE_S)

    async def _read(self) -> bool:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await self.refresh()
        except (EtcdError, TimeoutError) as error:
            log.warning("topics not read: %r", error)
            return False
        self._read_s = asyncio.get_running_loop().time()
        return True

    def _decode(self, kv: KeyValue) -> Topic:
        return decode_topic(self._keyspace.parse_topic(kv.key), kv.value, kv.mod_revision)

    def _changed(self, key: bytes, topic: Topic | None) -> None:
        name = self._keyspace.parse_topic(key)
        before = self._by_name.pop(name, None)
        if before is not None and self._by_id.get(before.topic_id) is before:
            del self._by_id[before.topic_id]
        if topic is not None:
            self._by_name[name] = topic
            self._by_id[topic.topic_id] = topic
        for listener in tuple(self._listeners):
            listener(name, topic)


def encode_epoch_floor(epoch: int) -> bytes:
    """`{prefix}/e/{topic_name}`: the highest leader epoch any topic of the name has used."""
    return store_pb2.EpochFloor(schema=SCHEMA, epoch=epoch).SerializeToString()


def decode_epoch_floor(data: bytes) -> int:
    message = store_pb2.EpochFloor()
    parse_value(message, data, "epoch floor")
    return message.epoch
