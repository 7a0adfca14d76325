"""All APIs: those that the modules of `handlers` register, and those of Kafka that are not served.

ApiVersions shows versions only for the first. It shows all others as -1/-1, so that clients see at once that they are
not supported. A client that asks all the same gets UNSUPPORTED_VERSION if the answer has an error for the whole of it
(not_served.py), else its connection is closed. A new API is a new module in `handlers`. For old clients, versions go
down to 0 although Kafka 4 has dropped some of them; librdkafka compresses nothing if Produce 0 is missing.
"""

from collections.abc import Mapping
from typing import Final

from kafscale.frontdoor import handlers
from kafscale.frontdoor.api import Api, NotServed
from kafscale.runtime.stream.apis import exported
from kafscale.wire.apis import ApiKey

_K = ApiKey
SECURITY: Final = "security"
TRANSACTIONS: Final = "transactions"
SHARE: Final = "share groups"
STREAMS: Final = "streams groups"
TELEMETRY: Final = "client telemetry"
NO_REPLICAS: Final = "object storage is the replication: there are no replicas to move"

SERVED: Final[Mapping[int, Api]] = exported(handlers, "API", Api)
"""By key, in the order of the keys."""

DEFERRED: Final = (
    NotServed(_K.ADD_PARTITIONS_TO_TXN, (0, 5), TRANSACTIONS, {4: "tea"}),
    NotServed(_K.ADD_OFFSETS_TO_TXN, (0, 4), TRANSACTIONS, {0: "te"}),
    NotServed(_K.END_TXN, (0, 5), TRANSACTIONS, {0: "te", 5: "teph"}),
    NotServed(_K.WRITE_TXN_MARKERS, (1, 2), TRANSACTIONS),
    NotServed(_K.TXN_OFFSET_COMMIT, (0, 5), TRANSACTIONS),
    NotServed(_K.CREATE_DELEGATION_TOKEN, (1, 3), SECURITY, {1: "essqqqsyt", 3: "essssqqqsyt"}),
    NotServed(_K.RENEW_DELEGATION_TOKEN, (1, 2), SECURITY, {1: "eqt"}),
    NotServed(_K.EXPIRE_DELEGATION_TOKEN, (1, 2), SECURITY, {1: "eqt"}),
    NotServed(_K.DESCRIBE_DELEGATION_TOKEN, (1, 3), SECURITY, {1: "eat"}),
    NotServed(_K.DESCRIBE_TRANSACTIONS, (0, 0), TRANSACTIONS),
    NotServed(_K.LIST_TRANSACTIONS, (0, 2), TRANSACTIONS, {0: "teaa"}),
    NotServed(_K.GET_TELEMETRY_SUBSCRIPTIONS, (0, 0), TELEMETRY, {0: "teuiaiiba"}),
    NotServed(_K.PUSH_TELEMETRY, (0, 0), TELEMETRY, {0: "te"}),
    NotServed(_K.SHARE_GROUP_HEARTBEAT, (1, 1), SHARE, {1: "temniix"}),
    NotServed(_K.SHARE_GROUP_DESCRIBE, (1, 1), SHARE),
    NotServed(_K.SHARE_FETCH, (1, 2), SHARE, {1: "temiaa"}),
    NotServed(_K.SHARE_ACKNOWLEDGE, (1, 2), SHARE, {1: "temaa", 2: "temiaa"}),
    NotServed(_K.STREAMS_GROUP_HEARTBEAT, (0, 0), STREAMS, {0: "temsiiiinnnnin"}),
    NotServed(_K.STREAMS_GROUP_DESCRIBE, (0, 0), STREAMS),
    NotServed(_K.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), SHARE),
    NotServed(_K.ALTER_SHARE_GROUP_OFFSETS, (0, 0), SHARE, {0: "tema"}),
    NotServed(_K.DELETE_SHARE_GROUP_OFFSETS, (0, 0), SHARE, {0: "tema"}),
)
"""They come with the work that `why` names."""

REFUSED: Final = (
    NotServed(_K.ALTER_REPLICA_LOG_DIRS, (1, 2), NO_REPLICAS),
    NotServed(_K.ALTER_PARTITION_REASSIGNMENTS, (0, 1), NO_REPLICAS, {0: "tema", 1: "tbema"}),
    NotServed(
        _K.DESCRIBE_QUORUM, (0, 2), "metadata lives in etcd: there is no KRaft quorum", {0: "ea", 2: "emaa"}
    ),
    NotServed(_K.UPDATE_FEATURES, (0, 2), "there are no feature levels to finalize", {0: "tema", 2: "tem"}),
    NotServed(
        _K.UNREGISTER_BROKER, (0, 0), "brokers register under leases and leave by themselves", {0: "tem"}
    ),
)
"""They never come."""

NOT_OFFERED: Final = (-1, -1)


def advertised() -> dict[int, tuple[int, int]]:
    """The versions in ApiVersions, by key."""
    shown = {key: api.versions for key, api in SERVED.items()}
    shown.update((int(api.key), NOT_OFFERED) for api in (*DEFERRED, *REFUSED))
    return dict(sorted(shown.items()))
