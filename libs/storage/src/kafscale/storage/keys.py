"""Every key in etcd and every object name. Pure.

etcd keys begin with /kafscale/{namespace}/, objects with {namespace}/. Both are persisted and must not change. Topic
ids are written in hex, partitions in decimal, slots with two digits, names and groups percent-encoded (legal topic
names do not change by that). So a prefix never matches the keys of another name. Segments and indexes have the names
of the specification; all other objects are below `@kafscale`, which is no legal topic name.

    live/{role}/{node_id}/{boot_id}   a running instance; bound to its lease
    node/{role}/{node_id}             the holder of the node id; bound to the same lease
    cluster                           the cluster's id, created once
    t/{topic}                         a topic: id, partitions, configs, state
    p/{topic_id}/{partition}          head: lock, fence, commit record, high watermark
    m/{topic_id}/{partition}          meta: log start, manifests
    o/{topic_id}/{partition}          epoch and owner, for processes that only route
    e/{topic}                         highest leader epoch the name ever used; outlives the topic
    pid/next                          first producer id that no block holds yet
    cs/{slot}                         the coordinator of the slot's groups
    g/{slot}/{group}                  a group: its generation or epoch; of a classic one its members
    g/{slot}/{group}/{m|a|t}/{member} a consumer group's member: its subscription, its assignment, its target
    c/{slot}/{group}/{topic_id}/{partition}   an offset that the group has committed
    cp/{slot}/{group}/{producer id}   offsets of a transaction that is not over
    gc/{group}                        configs of a group
    job/{name}                        when a job of upkeep last ended well
    job-place/{name}                  the log after which its next run continues
    pass/{topic_id}/{partition}       an unfinished pass of compaction
    x/{slot}/{transactional id}       the producer of a transactional id, and its transactions that are not over
    settle/{request}/{topic}          asks owners to settle at once: a topic, or without a name all; under a lease

The keys of ACLs, quotas and users, `acl/`, `quota/`, `user/` and `secret/`, are in access_keys.py, `h/` in history/.
Fetch services watch `m/` to the end of `p/` as one range. No kind of key that is often written may sort between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NewType
from urllib.parse import quote, unquote

from kafscale.storage.schema import UnreadableValue

TopicId = NewType("TopicId", bytes)
SlotId = NewType("SlotId", int)
BundleId = NewType("BundleId", bytes)
PartitionKey = tuple[TopicId, int]
TOPIC_ID_BYTES = 16
META_TOPIC_ID = "kfs-topic-id"
"""Metadata names of a segment and its index. They identify the attempt, so that an orphan can be recognized."""
META_EPOCH = "kfs-epoch"
META_ATTEMPT = "kfs-attempt"
META_LAST = "kfs-last"
META_CLUSTER = "kfs-cluster"  # of a bundle
META_OWNER = "kfs-owner"  # of a bundle: the instance that wrote it

OWN_TREE = "@kafscale"
_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SEGMENT = re.compile(
    r"(?P<topic>[^/@]+)/(?P<partition>\d{1,10})/segment-(?P<base>\d{20})\.(?P<kind>kfs|index)"
)
_BUNDLE = re.compile(r"\d{10}/(?P<id>[0-9a-f]{32})\.kfb")
_LAG_SAMPLES = re.compile(
    r"dt=(?P<day>\d{4}-\d\d-\d\d)/hour=\d\d/(?P<time>\d{6})-(?P<kind>[a-z]+)-[0-9a-f]+\.parquet"
)


class UnknownKey(UnreadableValue):
    """A key under a known prefix that this version does not write."""

    def __init__(self, key: bytes | str) -> None:
        super().__init__(f"{key!r} is not a key of this version of KafScale")
        self.key = key


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentName:
    """The parts of the name of a segment or an index."""

    topic: str
    partition: int
    base: int
    is_index: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSamplesName:
    """The parts of the name of a file of lag samples; its time has a resolution of a second."""

    at_ms: int
    kind: str


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix."""
    stripped = prefix.rstrip(b"\xff")
    assert stripped, "a prefix of nothing but 0xff has no end"
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def index_beside(segment_key: str) -> str:
    """The name of a segment's index, in any folder."""
    assert segment_key.endswith(".kfs"), segment_key
    return segment_key.removesuffix(".kfs") + ".index"


def check_namespace(name: str) -> str:
    """A name that keeps every key and object within the namespace's own tree."""
    if not _NAMESPACE.fullmatch(name) or name in (".", ".."):
        raise ValueError(
            f"{name!r} cannot be a namespace: use 1 to 100 letters, digits, dots, dashes or underscores, "
            "but not . or .. alone"
        )
    return name


class Keyspace:
    """The keys of one cluster, which is one namespace."""

    __slots__ = ("_etcd", "_heads", "_metas", "_owners", "namespace")

    def __init__(self, namespace: str = "default") -> None:
        self.namespace = check_namespace(namespace)
        self._etcd = f"/kafscale/{namespace}/".encode()
        self._heads = self._etcd + b"p/"
        self._metas = self._etcd + b"m/"
        self._owners = self._etcd + b"o/"

    def __repr__(self) -> str:
        return f"Keyspace({self.namespace!r})"

    # -- etcd ------------------------------------------------------------------------------------

    def root(self) -> bytes:
        return self._etcd

    def live(self, role: str, node_id: int, boot_id: str) -> bytes:
        return self.live_prefix(role) + f"{node_id}/{quote(boot_id, safe='')}".encode()

    def live_node_prefix(self, role: str, node_id: int) -> bytes:
        return self.live_prefix(role) + f"{node_id}/".encode()

    def live_prefix(self, role: str | None = None) -> bytes:
        return self._etcd + (b"live/" if role is None else f"live/{quote(role, safe='')}/".encode())

    def node(self, role: str, node_id: int) -> bytes:
        return self.nodes_prefix(role) + str(node_id).encode()

    def nodes_prefix(self, role: str) -> bytes:
        return self._etcd + f"node/{quote(role, safe='')}/".encode()

    def cluster(self) -> bytes:
        return self._etcd + b"cluster"

    def topic(self, name: str) -> bytes:
        return self.topics_prefix() + quote(name, safe="").encode()

    def topics_prefix(self) -> bytes:
        return self._etcd + b"t/"

    def head(self, topic_id: TopicId, partition: int) -> bytes:
        return self._heads + _suffix(topic_id, partition)

    def heads_prefix(self, topic_id: TopicId | None = None) -> bytes:
        return self._heads + _topic_part(topic_id)

    def meta(self, topic_id: TopicId, partition: int) -> bytes:
        return self._metas + _suffix(topic_id, partition)

    def metas_prefix(self, topic_id: TopicId | None = None) -> bytes:
        return self._metas + _topic_part(topic_id)

    def owner(self, topic_id: TopicId, partition: int) -> bytes:
        return self._owners + _suffix(topic_id, partition)

    def owners_prefix(self, topic_id: TopicId | None = None) -> bytes:
        return self._owners + _topic_part(topic_id)

    def epoch_floor(self, name: str) -> bytes:
        return self._etcd + b"e/" + quote(name, safe="").encode()

    def pid_next(self) -> bytes:
        return self._etcd + b"pid/next"

    def slot_claim(self, slot: SlotId) -> bytes:
        return self.slot_claims_prefix() + f"{slot:02d}".encode()

    def slot_claims_prefix(self) -> bytes:
        return self._etcd + b"cs/"

    def group(self, slot: SlotId, group: str) -> bytes:
        return self.groups_prefix(slot) + quote(group, safe="").encode()

    def beneath_group(self, group_key: bytes, kind: str = "", member_id: str = "") -> bytes:
        """A key of a member, or the prefix of all of them."""
        return group_key + b"/" + (f"{kind}/{quote(member_id, safe='')}".encode() if kind else b"")

    def groups_prefix(self, slot: SlotId | None = None) -> bytes:
        return self._etcd + b"g/" + _slot_part(slot)

    def committed(self, slot: SlotId, group: str, topic_id: TopicId, partition: int) -> bytes:
        return self.commits_prefix(slot, group) + _suffix(topic_id, partition)

    def commits_prefix(self, slot: SlotId | None = None, group: str | None = None) -> bytes:
        """The prefix of all offsets, of a slot's, or of one group's."""
        assert slot is not None or group is None, "a group is in a slot"
        group_part = b"" if group is None else f"{quote(group, safe='')}/".encode()
        return self._etcd + b"c/" + _slot_part(slot) + group_part

    def pending(self, slot: SlotId, group: str, producer_id: int) -> bytes:
        return self.pendings_prefix(slot, group) + str(producer_id).encode()

    def pendings_prefix(self, slot: SlotId | None = None, group: str | None = None) -> bytes:
        """The prefix of the offsets of all transactions, of a slot's, or of those that one group has."""
        assert slot is not None or group is None, "a group is in a slot"
        group_part = b"" if group is None else f"{quote(group, safe='')}/".encode()
        return self._etcd + b"cp/" + _slot_part(slot) + group_part

    def transaction(self, slot: SlotId, transactional_id: str) -> bytes:
        return self.transactions_prefix(slot) + quote(transactional_id, safe="").encode()

    def transactions_prefix(self, slot: SlotId | None = None) -> bytes:
        return self._etcd + b"x/" + _slot_part(slot)

    def group_config(self, group: str) -> bytes:
        return self.group_configs_prefix() + quote(group, safe="").encode()

    def group_configs_prefix(self) -> bytes:
        return self._etcd + b"gc/"

    def job_run(self, job: str) -> bytes:
        return self._etcd + b"job/" + quote(job, safe="").encode()

    def job_place(self, job: str) -> bytes:
        return self._etcd + b"job-place/" + quote(job, safe="").encode()

    def compaction_pass(self, topic_id: TopicId, partition: int) -> bytes:
        return self.compaction_passes_prefix(topic_id) + str(partition).encode()

    def compaction_passes_prefix(self, topic_id: TopicId) -> bytes:
        return self._etcd + b"pass/" + _topic_part(topic_id)

    def settle_request(self, request: str, topic: str = "") -> bytes:
        return self.settle_requests_prefix() + f"{request}/{quote(topic, safe='')}".encode()

    def settle_requests_prefix(self) -> bytes:
        return self._etcd + b"settle/"

    # -- and back --------------------------------------------------------------------------------

    def parse_topic(self, key: bytes) -> str:
        return unquote(_text(key, self._rest(key, self.topics_prefix())))

    def parse_head(self, key: bytes) -> tuple[TopicId, int]:
        return self.partition_of(key, self._heads)

    def parse_owner(self, key: bytes) -> tuple[TopicId, int]:
        return self.partition_of(key, self._owners)

    def parse_live(self, key: bytes) -> tuple[str, int, str]:
        """Role, node id, boot id."""
        parts = _text(key, self._rest(key, self.live_prefix())).split("/")
        if len(parts) != 3 or not parts[1].isdecimal():
            raise UnknownKey(key)
        return unquote(parts[0]), int(parts[1]), unquote(parts[2])

    def parse_settle_request(self, key: bytes) -> str:
        """The topic; "" means all."""
        return unquote(_text(key, self._rest(key, self.settle_requests_prefix()).partition(b"/")[2]))

    def parse_node(self, role: str, key: bytes) -> int:
        rest = self._rest(key, self.nodes_prefix(role))
        if not rest.isdigit():
            raise UnknownKey(key)
        return int(rest)

    def parse_in_group(self, key: bytes) -> tuple[SlotId, str, tuple[str, str] | None]:
        """Slot and group; for a member's key also its kind and the member id."""
        slot, *parts = self._rest(key, self.groups_prefix()).split(b"/")
        if len(parts) not in (1, 3):
            raise UnknownKey(key)
        names = [unquote(_text(key, part)) for part in parts]
        return _slot(key, slot), names[0], None if len(names) == 1 else (names[1], names[2])

    def parse_group_config(self, key: bytes) -> str:
        group = self._rest(key, self.group_configs_prefix())
        if b"/" in group:
            raise UnknownKey(key)
        return unquote(_text(key, group))

    def parse_committed(self, key: bytes) -> tuple[SlotId, str, TopicId, int]:
        parts = self._rest(key, self.commits_prefix()).split(b"/", 2)
        if len(parts) != 3:
            raise UnknownKey(key)
        return _slot(key, parts[0]), unquote(_text(key, parts[1])), *_partition_of(key, parts[2])

    def parse_pending(self, key: bytes) -> tuple[SlotId, str, int]:
        """Slot, group, producer id."""
        parts = self._rest(key, self.pendings_prefix()).split(b"/")
        if len(parts) != 3 or not parts[2].isdigit():
            raise UnknownKey(key)
        return _slot(key, parts[0]), unquote(_text(key, parts[1])), int(parts[2])

    def parse_transaction(self, key: bytes) -> tuple[SlotId, str]:
        """Slot, transactional id."""
        parts = self._rest(key, self.transactions_prefix()).split(b"/")
        if len(parts) != 2:
            raise UnknownKey(key)
        return _slot(key, parts[0]), unquote(_text(key, parts[1]))

    def partition_of(self, key: bytes, prefix: bytes) -> tuple[TopicId, int]:
        return _partition_of(key, self._rest(key, prefix))

    def _rest(self, key: bytes, prefix: bytes) -> bytes:
        if not key.startswith(prefix):
            raise UnknownKey(key)
        return key[len(prefix) :]

    # -- objects ---------------------------------------------------------------------------------

    def segment_key(self, topic: str, partition: int, base: int) -> str:
        return f"{self.namespace}/{topic}/{partition}/segment-{base:020d}.kfs"

    def index_key(self, topic: str, partition: int, base: int) -> str:
        return f"{self.namespace}/{topic}/{partition}/segment-{base:020d}.index"

    def topic_prefix(self, topic: str) -> str:
        return f"{self.namespace}/{topic}/"

    def partition_prefix(self, topic: str, partition: int) -> str:
        return f"{self.namespace}/{topic}/{partition}/"

    def manifest_key(self, topic_id: TopicId, partition: int, first: int, uuid: str) -> str:
        return f"{self.manifests_prefix(topic_id)}{partition}/{first:020d}-{uuid}.mf"

    def manifests_prefix(self, topic_id: TopicId) -> str:
        return f"{self.namespace}/{OWN_TREE}/manifest/{topic_id.hex()}/"

    def snapshot_key(self, topic_id: TopicId, partition: int, offset: int, uuid: str) -> str:
        return f"{self.snapshots_prefix(topic_id)}{partition}/{offset:020d}-{uuid}.ps"

    def snapshots_prefix(self, topic_id: TopicId) -> str:
        return f"{self.namespace}/{OWN_TREE}/producers/{topic_id.hex()}/"

    def compacted_key(self, topic_id: TopicId, partition: int, base: int, uuid: str) -> str:
        """A segment that compaction wrote; its index is in the same folder (`index_beside`)."""
        return f"{self.compacted_prefix(topic_id)}{partition}/{base:020d}-{uuid}.kfs"

    def compacted_prefix(self, topic_id: TopicId) -> str:
        return f"{self.namespace}/{OWN_TREE}/compacted/{topic_id.hex()}/"

    def bundle_key(self, bundle_id: BundleId) -> str:
        """The folder is the hour in the id's time, so that a sweep reads the old folders alone."""
        at = datetime.fromtimestamp(int.from_bytes(bundle_id[:6], "big") // 1000, UTC)
        return f"{self.bundles_prefix()}{at:%Y%m%d%H}/{bundle_id.hex()}.kfb"

    def bundles_prefix(self) -> str:
        return f"{self.namespace}/{OWN_TREE}/bundle/"

    def lag_samples_key(self, at_ms: int, kind: str, uuid: str) -> str:
        """The name contains `kind` and the time of day, so that a reader can select files by name."""
        at = datetime.fromtimestamp(at_ms // 1000, UTC)
        return f"{self.lag_hour_prefix(at_ms)}{at:%H%M%S}-{kind}-{uuid}.parquet"

    def lag_hour_prefix(self, at_ms: int) -> str:
        """Folders in Hive's form, which other programs read as columns."""
        at = datetime.fromtimestamp(at_ms // 1000, UTC)
        return f"{self.lag_prefix()}dt={at:%Y-%m-%d}/hour={at:%H}/"

    def lag_prefix(self) -> str:
        return f"{self.namespace}/{OWN_TREE}/lag/"

    def parse_lag_samples(self, key: str) -> LagSamplesName | None:
        """None if the object is not a file of lag samples of this namespace."""
        prefix = self.lag_prefix()
        found = _LAG_SAMPLES.fullmatch(key[len(prefix) :]) if key.startswith(prefix) else None
        if found is None:
            return None
        try:
            at = datetime.strptime(f"{found['day']} {found['time']}+0000", "%Y-%m-%d %H%M%S%z")
        except ValueError:
            return None
        return LagSamplesName(at_ms=int(at.timestamp()) * 1000, kind=found["kind"])

    def parse_bundle(self, key: str) -> BundleId | None:
        """None if the object is not a bundle of this namespace."""
        prefix = self.bundles_prefix()
        found = _BUNDLE.fullmatch(key[len(prefix) :]) if key.startswith(prefix) else None
        return None if found is None else BundleId(bytes.fromhex(found["id"]))

    def parse_segment(self, key: str) -> SegmentName | None:
        """None if the object is not a segment or an index of this namespace."""
        prefix = self.namespace + "/"
        found = _SEGMENT.fullmatch(key[len(prefix) :]) if key.startswith(prefix) else None
        if found is None:
            return None
        topic, partition, base, kind = found.group("topic", "partition", "base", "kind")
        return SegmentName(topic=topic, partition=int(partition), base=int(base), is_index=kind == "index")


def _suffix(topic_id: TopicId, partition: int) -> bytes:
    return f"{topic_id.hex()}/{partition}".encode()


def _topic_part(topic_id: TopicId | None) -> bytes:
    return b"" if topic_id is None else f"{topic_id.hex()}/".encode()


def _slot_part(slot: SlotId | None) -> bytes:
    return b"" if slot is None else f"{slot:02d}/".encode()


def _text(key: bytes, part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise UnknownKey(key) from None


def _slot(key: bytes, text: bytes) -> SlotId:
    if len(text) != 2 or not text.isdigit():
        raise UnknownKey(key)
    return SlotId(int(text))


def _partition_of(key: bytes, rest: bytes) -> tuple[TopicId, int]:
    topic, slash, partition = rest.partition(b"/")
    if len(topic) != 2 * TOPIC_ID_BYTES or not slash or not partition.isdigit():
        raise UnknownKey(key)
    try:
        return TopicId(bytes.fromhex(topic.decode())), int(partition)
    except ValueError:
        raise UnknownKey(key) from None
