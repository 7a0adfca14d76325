from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Live(_message.Message):
    __slots__ = ("schema", "role", "node_id", "boot_id", "address", "state", "listeners", "rack", "started_ms", "http_address", "tls", "unannounced")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Live.State]
        STARTING: _ClassVar[Live.State]
        READY: _ClassVar[Live.State]
        DRAINING: _ClassVar[Live.State]
    STATE_UNSPECIFIED: Live.State
    STARTING: Live.State
    READY: Live.State
    DRAINING: Live.State
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    UNANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    schema: int
    role: str
    node_id: int
    boot_id: str
    address: str
    state: Live.State
    listeners: _containers.RepeatedCompositeFieldContainer[Listener]
    rack: str
    started_ms: int
    http_address: str
    tls: bool
    unannounced: bool
    def __init__(self, schema: _Optional[int] = ..., role: _Optional[str] = ..., node_id: _Optional[int] = ..., boot_id: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[_Union[Live.State, str]] = ..., listeners: _Optional[_Iterable[_Union[Listener, _Mapping]]] = ..., rack: _Optional[str] = ..., started_ms: _Optional[int] = ..., http_address: _Optional[str] = ..., tls: _Optional[bool] = ..., unannounced: _Optional[bool] = ...) -> None: ...

class Listener(_message.Message):
    __slots__ = ("name", "host", "port")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class NodeLease(_message.Message):
    __slots__ = ("schema", "boot_id")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    schema: int
    boot_id: str
    def __init__(self, schema: _Optional[int] = ..., boot_id: _Optional[str] = ...) -> None: ...

class Cluster(_message.Message):
    __slots__ = ("schema", "cluster_id", "created_ms")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    cluster_id: str
    created_ms: int
    def __init__(self, schema: _Optional[int] = ..., cluster_id: _Optional[str] = ..., created_ms: _Optional[int] = ...) -> None: ...

class TopicConfig(_message.Message):
    __slots__ = ("schema", "topic_id", "partitions", "retention_ms", "retention_bytes", "segment_bytes", "created_at", "config_version", "epoch_floor", "state", "configs", "replication_factor")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[TopicConfig.State]
        ACTIVE: _ClassVar[TopicConfig.State]
        DELETING: _ClassVar[TopicConfig.State]
    STATE_UNSPECIFIED: TopicConfig.State
    ACTIVE: TopicConfig.State
    DELETING: TopicConfig.State
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CONFIG_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FLOOR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    schema: int
    topic_id: bytes
    partitions: int
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    created_at: int
    config_version: int
    epoch_floor: int
    state: TopicConfig.State
    configs: _containers.ScalarMap[str, str]
    replication_factor: int
    def __init__(self, schema: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., retention_ms: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., created_at: _Optional[int] = ..., config_version: _Optional[int] = ..., epoch_floor: _Optional[int] = ..., state: _Optional[_Union[TopicConfig.State, str]] = ..., configs: _Optional[_Mapping[str, str]] = ..., replication_factor: _Optional[int] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("schema", "epoch", "owner", "handoff_to", "next", "lso", "attempt", "tail", "epochs", "bytes", "max_ts", "snap_offset", "snap_key", "topic", "open")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_TO_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    LSO_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_TS_FIELD_NUMBER: _ClassVar[int]
    SNAP_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SNAP_KEY_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    schema: int
    epoch: int
    owner: str
    handoff_to: str
    next: int
    lso: int
    attempt: bytes
    tail: _containers.RepeatedCompositeFieldContainer[Seg]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    bytes: int
    max_ts: int
    snap_offset: int
    snap_key: str
    topic: str
    open: _containers.RepeatedCompositeFieldContainer[OpenTransaction]
    def __init__(self, schema: _Optional[int] = ..., epoch: _Optional[int] = ..., owner: _Optional[str] = ..., handoff_to: _Optional[str] = ..., next: _Optional[int] = ..., lso: _Optional[int] = ..., attempt: _Optional[bytes] = ..., tail: _Optional[_Iterable[_Union[Seg, _Mapping]]] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., bytes: _Optional[int] = ..., max_ts: _Optional[int] = ..., snap_offset: _Optional[int] = ..., snap_key: _Optional[str] = ..., topic: _Optional[str] = ..., open: _Optional[_Iterable[_Union[OpenTransaction, _Mapping]]] = ...) -> None: ...

class OpenTransaction(_message.Message):
    __slots__ = ("producer_id", "epoch", "number", "first")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    number: int
    first: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class Seg(_message.Message):
    __slots__ = ("base", "last_delta", "size", "etag", "crc32c", "index_size", "index_etag", "epoch", "min_ts", "max_ts", "records", "batches", "key", "created", "aborted", "delete_horizon", "bundle", "position", "unstable")
    BASE_FIELD_NUMBER: _ClassVar[int]
    LAST_DELTA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    INDEX_SIZE_FIELD_NUMBER: _ClassVar[int]
    INDEX_ETAG_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MIN_TS_FIELD_NUMBER: _ClassVar[int]
    MAX_TS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    DELETE_HORIZON_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    UNSTABLE_FIELD_NUMBER: _ClassVar[int]
    base: int
    last_delta: int
    size: int
    etag: str
    crc32c: int
    index_size: int
    index_etag: str
    epoch: int
    min_ts: int
    max_ts: int
    records: int
    batches: int
    key: str
    created: int
    aborted: _containers.RepeatedCompositeFieldContainer[Aborted]
    delete_horizon: int
    bundle: bytes
    position: int
    unstable: int
    def __init__(self, base: _Optional[int] = ..., last_delta: _Optional[int] = ..., size: _Optional[int] = ..., etag: _Optional[str] = ..., crc32c: _Optional[int] = ..., index_size: _Optional[int] = ..., index_etag: _Optional[str] = ..., epoch: _Optional[int] = ..., min_ts: _Optional[int] = ..., max_ts: _Optional[int] = ..., records: _Optional[int] = ..., batches: _Optional[int] = ..., key: _Optional[str] = ..., created: _Optional[int] = ..., aborted: _Optional[_Iterable[_Union[Aborted, _Mapping]]] = ..., delete_horizon: _Optional[int] = ..., bundle: _Optional[bytes] = ..., position: _Optional[int] = ..., unstable: _Optional[int] = ...) -> None: ...

class Aborted(_message.Message):
    __slots__ = ("producer_id", "first", "last")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first: int
    last: int
    def __init__(self, producer_id: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("epoch", "start")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start: int
    def __init__(self, epoch: _Optional[int] = ..., start: _Optional[int] = ...) -> None: ...

class Meta(_message.Message):
    __slots__ = ("schema", "log_start", "manifest_end", "chunks", "gc_seq", "swept", "epochs_key", "freed")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_END_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    GC_SEQ_FIELD_NUMBER: _ClassVar[int]
    SWEPT_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_KEY_FIELD_NUMBER: _ClassVar[int]
    FREED_FIELD_NUMBER: _ClassVar[int]
    schema: int
    log_start: int
    manifest_end: int
    chunks: _containers.RepeatedCompositeFieldContainer[ManifestRef]
    gc_seq: int
    swept: int
    epochs_key: str
    freed: int
    def __init__(self, schema: _Optional[int] = ..., log_start: _Optional[int] = ..., manifest_end: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[ManifestRef, _Mapping]]] = ..., gc_seq: _Optional[int] = ..., swept: _Optional[int] = ..., epochs_key: _Optional[str] = ..., freed: _Optional[int] = ...) -> None: ...

class ManifestRef(_message.Message):
    __slots__ = ("key", "first", "last", "count", "level")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    key: str
    first: int
    last: int
    count: int
    level: int
    def __init__(self, key: _Optional[str] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., count: _Optional[int] = ..., level: _Optional[int] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("schema", "segments", "epochs")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    segments: _containers.RepeatedCompositeFieldContainer[Seg]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    def __init__(self, schema: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[Seg, _Mapping]]] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ...) -> None: ...

class ProducerSnapshot(_message.Message):
    __slots__ = ("schema", "offset", "producers", "open")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    schema: int
    offset: int
    producers: _containers.RepeatedCompositeFieldContainer[ProducerEntry]
    open: _containers.RepeatedCompositeFieldContainer[OpenTransaction]
    def __init__(self, schema: _Optional[int] = ..., offset: _Optional[int] = ..., producers: _Optional[_Iterable[_Union[ProducerEntry, _Mapping]]] = ..., open: _Optional[_Iterable[_Union[OpenTransaction, _Mapping]]] = ...) -> None: ...

class ProducerEntry(_message.Message):
    __slots__ = ("producer_id", "epoch", "last_ms", "batches", "coordinator_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    last_ms: int
    batches: _containers.RepeatedCompositeFieldContainer[ProducerBatch]
    coordinator_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_ms: _Optional[int] = ..., batches: _Optional[_Iterable[_Union[ProducerBatch, _Mapping]]] = ..., coordinator_epoch: _Optional[int] = ...) -> None: ...

class ProducerBatch(_message.Message):
    __slots__ = ("first_seq", "last_seq", "base", "ts")
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    first_seq: int
    last_seq: int
    base: int
    ts: int
    def __init__(self, first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ..., base: _Optional[int] = ..., ts: _Optional[int] = ...) -> None: ...

class Owner(_message.Message):
    __slots__ = ("schema", "epoch", "owner", "handoff_to")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_TO_FIELD_NUMBER: _ClassVar[int]
    schema: int
    epoch: int
    owner: str
    handoff_to: str
    def __init__(self, schema: _Optional[int] = ..., epoch: _Optional[int] = ..., owner: _Optional[str] = ..., handoff_to: _Optional[str] = ...) -> None: ...

class EpochFloor(_message.Message):
    __slots__ = ("schema", "epoch")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    schema: int
    epoch: int
    def __init__(self, schema: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ProducerIds(_message.Message):
    __slots__ = ("schema", "next")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    schema: int
    next: int
    def __init__(self, schema: _Optional[int] = ..., next: _Optional[int] = ...) -> None: ...

class GroupState(_message.Message):
    __slots__ = ("schema", "group", "empty_since_ms", "classic", "consumer", "consumer_metadata")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EMPTY_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    CLASSIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_METADATA_FIELD_NUMBER: _ClassVar[int]
    schema: int
    group: str
    empty_since_ms: int
    classic: ClassicGroup
    consumer: ConsumerGroup
    consumer_metadata: ConsumerGroupMetadata
    def __init__(self, schema: _Optional[int] = ..., group: _Optional[str] = ..., empty_since_ms: _Optional[int] = ..., classic: _Optional[_Union[ClassicGroup, _Mapping]] = ..., consumer: _Optional[_Union[ConsumerGroup, _Mapping]] = ..., consumer_metadata: _Optional[_Union[ConsumerGroupMetadata, _Mapping]] = ...) -> None: ...

class ClassicGroup(_message.Message):
    __slots__ = ("generation", "protocol_type", "protocol", "leader", "phase", "members")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[ClassicGroup.Phase]
        EMPTY: _ClassVar[ClassicGroup.Phase]
        PREPARING_REBALANCE: _ClassVar[ClassicGroup.Phase]
        COMPLETING_REBALANCE: _ClassVar[ClassicGroup.Phase]
        STABLE: _ClassVar[ClassicGroup.Phase]
    PHASE_UNSPECIFIED: ClassicGroup.Phase
    EMPTY: ClassicGroup.Phase
    PREPARING_REBALANCE: ClassicGroup.Phase
    COMPLETING_REBALANCE: ClassicGroup.Phase
    STABLE: ClassicGroup.Phase
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    phase: ClassicGroup.Phase
    members: _containers.RepeatedCompositeFieldContainer[ClassicMember]
    def __init__(self, generation: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., leader: _Optional[str] = ..., phase: _Optional[_Union[ClassicGroup.Phase, str]] = ..., members: _Optional[_Iterable[_Union[ClassicMember, _Mapping]]] = ...) -> None: ...

class ClassicMember(_message.Message):
    __slots__ = ("id", "instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "protocols", "assignment")
    ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    id: str
    instance_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: _containers.RepeatedCompositeFieldContainer[ClassicProtocol]
    assignment: bytes
    def __init__(self, id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., protocols: _Optional[_Iterable[_Union[ClassicProtocol, _Mapping]]] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class ClassicProtocol(_message.Message):
    __slots__ = ("name", "metadata")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    metadata: bytes
    def __init__(self, name: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class ConsumerGroupMetadata(_message.Message):
    __slots__ = ("group_epoch", "assignment_epoch", "metadata_hash")
    GROUP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_HASH_FIELD_NUMBER: _ClassVar[int]
    group_epoch: int
    assignment_epoch: int
    metadata_hash: bytes
    def __init__(self, group_epoch: _Optional[int] = ..., assignment_epoch: _Optional[int] = ..., metadata_hash: _Optional[bytes] = ...) -> None: ...

class ConsumerMemberMetadata(_message.Message):
    __slots__ = ("schema", "instance_id", "rack", "client_id", "client_host", "rebalance_timeout_ms", "subscribed", "regex", "assignor", "principal")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    schema: int
    instance_id: str
    rack: str
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    subscribed: _containers.RepeatedScalarFieldContainer[str]
    regex: str
    assignor: str
    principal: str
    def __init__(self, schema: _Optional[int] = ..., instance_id: _Optional[str] = ..., rack: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., rebalance_timeout_ms: _Optional[int] = ..., subscribed: _Optional[_Iterable[str]] = ..., regex: _Optional[str] = ..., assignor: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...

class ConsumerMemberAssignment(_message.Message):
    __slots__ = ("schema", "member_epoch", "previous_epoch", "state", "assigned", "pending_revocation")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    PENDING_REVOCATION_FIELD_NUMBER: _ClassVar[int]
    schema: int
    member_epoch: int
    previous_epoch: int
    state: ConsumerMember.State
    assigned: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    pending_revocation: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    def __init__(self, schema: _Optional[int] = ..., member_epoch: _Optional[int] = ..., previous_epoch: _Optional[int] = ..., state: _Optional[_Union[ConsumerMember.State, str]] = ..., assigned: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., pending_revocation: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ...) -> None: ...

class ConsumerMemberTarget(_message.Message):
    __slots__ = ("schema", "partitions")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    def __init__(self, schema: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ...) -> None: ...

class ConsumerGroup(_message.Message):
    __slots__ = ("group_epoch", "assignment_epoch", "target", "members", "metadata_hash")
    GROUP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_HASH_FIELD_NUMBER: _ClassVar[int]
    group_epoch: int
    assignment_epoch: int
    target: _containers.RepeatedCompositeFieldContainer[TargetAssignment]
    members: _containers.RepeatedCompositeFieldContainer[ConsumerMember]
    metadata_hash: bytes
    def __init__(self, group_epoch: _Optional[int] = ..., assignment_epoch: _Optional[int] = ..., target: _Optional[_Iterable[_Union[TargetAssignment, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[ConsumerMember, _Mapping]]] = ..., metadata_hash: _Optional[bytes] = ...) -> None: ...

class TargetAssignment(_message.Message):
    __slots__ = ("member_id", "partitions")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    def __init__(self, member_id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ...) -> None: ...

class ConsumerMember(_message.Message):
    __slots__ = ("id", "instance_id", "rack", "client_id", "client_host", "member_epoch", "previous_epoch", "state", "rebalance_timeout_ms", "subscribed", "regex", "assignor", "assigned", "pending_revocation")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[ConsumerMember.State]
        STABLE: _ClassVar[ConsumerMember.State]
        UNREVOKED_PARTITIONS: _ClassVar[ConsumerMember.State]
        UNRELEASED_PARTITIONS: _ClassVar[ConsumerMember.State]
    STATE_UNSPECIFIED: ConsumerMember.State
    STABLE: ConsumerMember.State
    UNREVOKED_PARTITIONS: ConsumerMember.State
    UNRELEASED_PARTITIONS: ConsumerMember.State
    ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    PENDING_REVOCATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    instance_id: str
    rack: str
    client_id: str
    client_host: str
    member_epoch: int
    previous_epoch: int
    state: ConsumerMember.State
    rebalance_timeout_ms: int
    subscribed: _containers.RepeatedScalarFieldContainer[str]
    regex: str
    assignor: str
    assigned: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    pending_revocation: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    def __init__(self, id: _Optional[str] = ..., instance_id: _Optional[str] = ..., rack: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., member_epoch: _Optional[int] = ..., previous_epoch: _Optional[int] = ..., state: _Optional[_Union[ConsumerMember.State, str]] = ..., rebalance_timeout_ms: _Optional[int] = ..., subscribed: _Optional[_Iterable[str]] = ..., regex: _Optional[str] = ..., assignor: _Optional[str] = ..., assigned: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., pending_revocation: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ...) -> None: ...

class TopicPartitions(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("schema", "offset", "leader_epoch", "metadata", "commit_ms", "expire_ms")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_MS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    def __init__(self, schema: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ..., commit_ms: _Optional[int] = ..., expire_ms: _Optional[int] = ...) -> None: ...

class TransactionState(_message.Message):
    __slots__ = ("schema", "id", "producer_id", "epoch", "last_epoch", "previous_id", "timeout_ms", "number", "started_ms", "changed_ms", "last", "last_bumped", "current", "closing")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[TransactionState.Outcome]
        COMMIT: _ClassVar[TransactionState.Outcome]
        ABORT: _ClassVar[TransactionState.Outcome]
    NONE: TransactionState.Outcome
    COMMIT: TransactionState.Outcome
    ABORT: TransactionState.Outcome
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LAST_BUMPED_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    CLOSING_FIELD_NUMBER: _ClassVar[int]
    schema: int
    id: str
    producer_id: int
    epoch: int
    last_epoch: int
    previous_id: int
    timeout_ms: int
    number: int
    started_ms: int
    changed_ms: int
    last: TransactionState.Outcome
    last_bumped: bool
    current: Participants
    closing: ClosingTransaction
    def __init__(self, schema: _Optional[int] = ..., id: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_epoch: _Optional[int] = ..., previous_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., number: _Optional[int] = ..., started_ms: _Optional[int] = ..., changed_ms: _Optional[int] = ..., last: _Optional[_Union[TransactionState.Outcome, str]] = ..., last_bumped: _Optional[bool] = ..., current: _Optional[_Union[Participants, _Mapping]] = ..., closing: _Optional[_Union[ClosingTransaction, _Mapping]] = ...) -> None: ...

class Participants(_message.Message):
    __slots__ = ("partitions", "groups")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class ClosingTransaction(_message.Message):
    __slots__ = ("number", "producer_id", "marker_epoch", "bumped", "commit", "coordinator_epoch", "awaited")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    MARKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BUMPED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    number: int
    producer_id: int
    marker_epoch: int
    bumped: bool
    commit: bool
    coordinator_epoch: int
    awaited: Participants
    def __init__(self, number: _Optional[int] = ..., producer_id: _Optional[int] = ..., marker_epoch: _Optional[int] = ..., bumped: _Optional[bool] = ..., commit: _Optional[bool] = ..., coordinator_epoch: _Optional[int] = ..., awaited: _Optional[_Union[Participants, _Mapping]] = ...) -> None: ...

class PendingOffsets(_message.Message):
    __slots__ = ("schema", "group", "producer_id", "epoch", "number", "offsets")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    group: str
    producer_id: int
    epoch: int
    number: int
    offsets: _containers.RepeatedCompositeFieldContainer[PendingOffset]
    def __init__(self, schema: _Optional[int] = ..., group: _Optional[str] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[PendingOffset, _Mapping]]] = ...) -> None: ...

class PendingOffset(_message.Message):
    __slots__ = ("topic_id", "partition", "offset", "since")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    offset: CommittedOffset
    since: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., offset: _Optional[_Union[CommittedOffset, _Mapping]] = ..., since: _Optional[int] = ...) -> None: ...

class GroupConfig(_message.Message):
    __slots__ = ("schema", "configs")
    class ConfigsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    configs: _containers.ScalarMap[str, str]
    def __init__(self, schema: _Optional[int] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("schema", "resource_type", "pattern_type", "resource_name", "principal", "host", "operation", "permission")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    schema: int
    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int
    def __init__(self, schema: _Optional[int] = ..., resource_type: _Optional[int] = ..., pattern_type: _Optional[int] = ..., resource_name: _Optional[str] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[int] = ..., permission: _Optional[int] = ...) -> None: ...

class ClientQuota(_message.Message):
    __slots__ = ("schema", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    schema: int
    values: _containers.ScalarMap[str, float]
    def __init__(self, schema: _Optional[int] = ..., values: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ScramCredential(_message.Message):
    __slots__ = ("schema", "salt", "stored_key", "server_key", "iterations")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    def __init__(self, schema: _Optional[int] = ..., salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ..., iterations: _Optional[int] = ...) -> None: ...

class JobPlace(_message.Message):
    __slots__ = ("schema", "topic", "partition", "key")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    schema: int
    topic: str
    partition: int
    key: str
    def __init__(self, schema: _Optional[int] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class CompactionPass(_message.Message):
    __slots__ = ("schema", "next", "end", "left_ms")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    next: int
    end: int
    left_ms: int
    def __init__(self, schema: _Optional[int] = ..., next: _Optional[int] = ..., end: _Optional[int] = ..., left_ms: _Optional[int] = ...) -> None: ...

class JobRun(_message.Message):
    __slots__ = ("schema", "ended_ms")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    ended_ms: int
    def __init__(self, schema: _Optional[int] = ..., ended_ms: _Optional[int] = ...) -> None: ...

class Witness(_message.Message):
    __slots__ = ("schema", "made_ms")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MADE_MS_FIELD_NUMBER: _ClassVar[int]
    schema: int
    made_ms: int
    def __init__(self, schema: _Optional[int] = ..., made_ms: _Optional[int] = ...) -> None: ...
