"""The one table of what this server answers: a row for each API a Kafka client may ask for.

ApiVersions, the dispatch of requests and docs/protocol/apis.md all come from these rows. A row is SERVED,
DEFERRED until the work it needs is done, or REFUSED for good; only served rows are advertised with
versions, the others stand as -1/-1, so that clients see a clear no. Where old clients ask, versions go down to 0,
although Kafka 4 has dropped those; and librdkafka compresses nothing when Produce 0 is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.headers import RequestHeader


class Status(Enum):
    SERVED = "served"
    DEFERRED = "deferred"
    REFUSED = "refused"


class Backend(Enum):
    """Who answers; the values of all but the front door are roles in the live view."""

    FRONTDOOR = "frontdoor"
    PRODUCE = "produce"
    FETCH = "fetch"
    COORDINATOR = "coordinator"
    ADMIN = "admin"


class Stream(Enum):
    """Record bytes and small calls travel apart, so that a large frame never holds up a heartbeat."""

    BULK = "bulk"
    CONTROL = "control"


class Order(Enum):
    """ORDERED: requests of one lane must reach the service in their order. CONCURRENT: any order."""

    ORDERED = "ordered"
    CONCURRENT = "concurrent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    key: ApiKey
    name: str
    version_min: int
    version_max: int
    backend: Backend
    stream: Stream
    order: Order
    status: Status
    why: str = ""

    def answers(self, version: int) -> bool:
        return self.status is Status.SERVED and self.version_min <= version <= self.version_max


def _row(
    key: ApiKey,
    version_min: int,
    version_max: int,
    backend: Backend,
    *,
    order: Order = Order.CONCURRENT,
    status: Status = Status.SERVED,
    why: str = "",
) -> Row:
    return Row(
        key=key,
        name=api_label(key),
        version_min=version_min,
        version_max=version_max,
        backend=backend,
        stream=Stream.BULK if key in (ApiKey.PRODUCE, ApiKey.FETCH) else Stream.CONTROL,
        order=order,
        status=status,
        why=why,
    )


def _later(key: ApiKey, version_min: int, version_max: int, backend: Backend, why: str) -> Row:
    return _row(key, version_min, version_max, backend, status=Status.DEFERRED, why=why)


def _never(key: ApiKey, version_min: int, version_max: int, why: str) -> Row:
    return _row(key, version_min, version_max, Backend.FRONTDOOR, status=Status.REFUSED, why=why)


SECURITY: Final = "security"
TRANSACTIONS: Final = "transactions"
SHARE: Final = "share groups"
STREAMS: Final = "streams groups"
QUOTAS: Final = "quotas"
TELEMETRY: Final = "client telemetry"
NO_REPLICAS: Final = "object storage is the replication: there are no replicas to move"

_K, _B = ApiKey, Backend

ROWS: Final[tuple[Row, ...]] = (
    _row(_K.PRODUCE, 0, 13, _B.PRODUCE, order=Order.ORDERED),
    _row(_K.FETCH, 0, 18, _B.FETCH),
    _row(_K.LIST_OFFSETS, 0, 11, _B.FETCH),
    _row(_K.METADATA, 0, 13, _B.ADMIN),
    _row(_K.OFFSET_COMMIT, 0, 10, _B.COORDINATOR, order=Order.ORDERED),
    _row(_K.OFFSET_FETCH, 0, 10, _B.COORDINATOR, order=Order.ORDERED),
    _row(_K.FIND_COORDINATOR, 0, 6, _B.COORDINATOR),
    _row(_K.JOIN_GROUP, 0, 9, _B.COORDINATOR, order=Order.ORDERED),
    _row(_K.HEARTBEAT, 0, 4, _B.COORDINATOR, order=Order.ORDERED),
    _row(_K.LEAVE_GROUP, 0, 5, _B.COORDINATOR, order=Order.ORDERED),
    _row(_K.SYNC_GROUP, 0, 5, _B.COORDINATOR, order=Order.ORDERED),
    _row(_K.DESCRIBE_GROUPS, 0, 6, _B.COORDINATOR),
    _row(_K.LIST_GROUPS, 0, 5, _B.COORDINATOR),
    _later(_K.SASL_HANDSHAKE, 0, 1, _B.FRONTDOOR, SECURITY),
    _row(_K.API_VERSIONS, 0, 4, _B.FRONTDOOR),
    _row(_K.CREATE_TOPICS, 0, 7, _B.ADMIN),
    _row(_K.DELETE_TOPICS, 0, 6, _B.ADMIN),
    _row(_K.DELETE_RECORDS, 0, 2, _B.ADMIN),
    _row(_K.INIT_PRODUCER_ID, 0, 5, _B.COORDINATOR),
    _row(_K.OFFSET_FOR_LEADER_EPOCH, 0, 4, _B.FETCH),
    _later(_K.ADD_PARTITIONS_TO_TXN, 0, 5, _B.COORDINATOR, TRANSACTIONS),
    _later(_K.ADD_OFFSETS_TO_TXN, 0, 4, _B.COORDINATOR, TRANSACTIONS),
    _later(_K.END_TXN, 0, 5, _B.COORDINATOR, TRANSACTIONS),
    _later(_K.WRITE_TXN_MARKERS, 1, 2, _B.COORDINATOR, TRANSACTIONS),
    _later(_K.TXN_OFFSET_COMMIT, 0, 5, _B.COORDINATOR, TRANSACTIONS),
    _row(_K.DESCRIBE_ACLS, 1, 3, _B.ADMIN),
    _row(_K.CREATE_ACLS, 1, 3, _B.ADMIN),
    _row(_K.DELETE_ACLS, 1, 3, _B.ADMIN),
    _row(_K.DESCRIBE_CONFIGS, 0, 4, _B.ADMIN),
    _row(_K.ALTER_CONFIGS, 0, 2, _B.ADMIN),
    _never(_K.ALTER_REPLICA_LOG_DIRS, 1, 2, NO_REPLICAS),
    _row(_K.DESCRIBE_LOG_DIRS, 0, 5, _B.ADMIN),
    _later(_K.SASL_AUTHENTICATE, 0, 2, _B.FRONTDOOR, SECURITY),
    _row(_K.CREATE_PARTITIONS, 0, 3, _B.ADMIN),
    _later(_K.CREATE_DELEGATION_TOKEN, 1, 3, _B.ADMIN, SECURITY),
    _later(_K.RENEW_DELEGATION_TOKEN, 1, 2, _B.ADMIN, SECURITY),
    _later(_K.EXPIRE_DELEGATION_TOKEN, 1, 2, _B.ADMIN, SECURITY),
    _later(_K.DESCRIBE_DELEGATION_TOKEN, 1, 3, _B.ADMIN, SECURITY),
    _row(_K.DELETE_GROUPS, 0, 2, _B.COORDINATOR),
    _row(_K.ELECT_LEADERS, 0, 2, _B.ADMIN),
    _row(_K.INCREMENTAL_ALTER_CONFIGS, 0, 1, _B.ADMIN),
    _never(_K.ALTER_PARTITION_REASSIGNMENTS, 0, 1, NO_REPLICAS),
    _row(_K.LIST_PARTITION_REASSIGNMENTS, 0, 0, _B.ADMIN),
    _row(_K.OFFSET_DELETE, 0, 0, _B.COORDINATOR, order=Order.ORDERED),
    _later(_K.DESCRIBE_CLIENT_QUOTAS, 0, 1, _B.ADMIN, QUOTAS),
    _later(_K.ALTER_CLIENT_QUOTAS, 0, 1, _B.ADMIN, QUOTAS),
    _later(_K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, _B.ADMIN, SECURITY),
    _later(_K.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, _B.ADMIN, SECURITY),
    _never(_K.DESCRIBE_QUORUM, 0, 2, "metadata lives in etcd: there is no KRaft quorum"),
    _never(_K.UPDATE_FEATURES, 0, 2, "there are no feature levels to finalize"),
    _row(_K.DESCRIBE_CLUSTER, 0, 2, _B.ADMIN),
    _row(_K.DESCRIBE_PRODUCERS, 0, 0, _B.PRODUCE),
    _never(_K.UNREGISTER_BROKER, 0, 0, "brokers register under leases and leave by themselves"),
    _later(_K.DESCRIBE_TRANSACTIONS, 0, 0, _B.COORDINATOR, TRANSACTIONS),
    _later(_K.LIST_TRANSACTIONS, 0, 2, _B.COORDINATOR, TRANSACTIONS),
    _row(_K.CONSUMER_GROUP_HEARTBEAT, 0, 1, _B.COORDINATOR, order=Order.ORDERED),
    _row(_K.CONSUMER_GROUP_DESCRIBE, 0, 1, _B.COORDINATOR),
    _later(_K.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, _B.FRONTDOOR, TELEMETRY),
    _later(_K.PUSH_TELEMETRY, 0, 0, _B.FRONTDOOR, TELEMETRY),
    _row(_K.LIST_CONFIG_RESOURCES, 0, 1, _B.ADMIN),
    _row(_K.DESCRIBE_TOPIC_PARTITIONS, 0, 0, _B.ADMIN),
    _later(_K.SHARE_GROUP_HEARTBEAT, 1, 1, _B.COORDINATOR, SHARE),
    _later(_K.SHARE_GROUP_DESCRIBE, 1, 1, _B.COORDINATOR, SHARE),
    _later(_K.SHARE_FETCH, 1, 2, _B.FETCH, SHARE),
    _later(_K.SHARE_ACKNOWLEDGE, 1, 2, _B.FETCH, SHARE),
    _later(_K.STREAMS_GROUP_HEARTBEAT, 0, 0, _B.COORDINATOR, STREAMS),
    _later(_K.STREAMS_GROUP_DESCRIBE, 0, 0, _B.COORDINATOR, STREAMS),
    _later(_K.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, _B.COORDINATOR, SHARE),
    _later(_K.ALTER_SHARE_GROUP_OFFSETS, 0, 0, _B.COORDINATOR, SHARE),
    _later(_K.DELETE_SHARE_GROUP_OFFSETS, 0, 0, _B.COORDINATOR, SHARE),
)

BY_KEY: Final[Mapping[int, Row]] = {int(row.key): row for row in ROWS}
NOT_OFFERED: Final = -1

LARGE: Final = frozenset(
    {
        _K.METADATA,
        _K.OFFSET_FETCH,
        _K.DESCRIBE_GROUPS,
        _K.LIST_GROUPS,
        _K.CREATE_TOPICS,
        _K.DESCRIBE_CONFIGS,
        _K.DESCRIBE_LOG_DIRS,
        _K.ELECT_LEADERS,
        _K.DESCRIBE_PRODUCERS,
        _K.CONSUMER_GROUP_DESCRIBE,
        _K.LIST_CONFIG_RESOURCES,
        _K.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""APIs whose answer may be large beside its request. Fetch has turns of its own (fetch_turns.py)."""


def is_large(header: RequestHeader) -> bool:
    return header.api_key in LARGE


def advertised(row: Row) -> tuple[int, int]:
    """The range in ApiVersions."""
    if row.status is Status.SERVED:
        return row.version_min, row.version_max
    return NOT_OFFERED, NOT_OFFERED
