"""All APIs: those that the modules of `handlers` register, and those of Kafka that are not served.

ApiVersions shows versions only for the first. It shows all others as -1/-1, so that clients see at once that they are
not supported. For old clients, versions go down to 0 although Kafka 4 has dropped some of them; librdkafka compresses
nothing if Produce 0 is missing. A new API is a new module in `handlers`.

Clients that do not ask for ApiVersions send requests of the others all the same. Closing the connection would end
whatever else they do on it, and users see "EOF". So they get UNSUPPORTED_VERSION, and why, if there is a field for a
text. There is no codec of these APIs, so each answer is written from the letters of its fields, all of which have their
defaults. The answers of some APIs have an error for each entry only: their connection is closed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafscale.frontdoor import handlers
from kafscale.frontdoor.api import Api, Backend, Own
from kafscale.frontdoor.refusals import refuse_exchange
from kafscale.runtime.stream.apis import exported
from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError

FIXED: Final[Mapping[str, bytes]] = {
    "t": bytes(4),  # throttle time
    "b": b"\1",
    "h": b"\xff" * 2,
    "i": bytes(4),
    "q": bytes(8),
    "p": b"\xff" * 8,  # a producer id
    "u": bytes(16),
    "x": b"\xff",  # a struct that is null
}
PLAIN: Final[Mapping[str, bytes]] = {"a": bytes(4), "s": bytes(2), "y": bytes(4)}
"""An array, a text and bytes, each of them empty, before the API's first flexible version."""
COMPACT: Final[Mapping[str, bytes]] = {"a": b"\1", "s": b"\1", "y": b"\1", "n": b"\0"}
"""`n`: null. `e` is the error and `m` the text, which may be null (each layout with one is flexible)."""
NO_TAGS: Final = b"\0"
TEXT_BYTES_MAX: Final = 126


@dataclass(frozen=True, slots=True)
class NotServed:
    """An API of Kafka that ApiVersions shows as -1/-1. `versions`: Kafka's. `layouts`: the fields of the answer, by the
    version that introduced them, a letter for each; without one, the answer has no error for the whole of it."""

    key: ApiKey
    versions: tuple[int, int]
    why: str
    layouts: Mapping[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return api_label(self.key)

    def as_api(self) -> Api:
        """An API that serves no version, so the gateway refuses each."""

        def refuse(_: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
            return [self._answer(version, code)]

        handler = partial(refuse_exchange, code=ErrorCode.UNSUPPORTED_VERSION)
        return Api(
            key=self.key,
            versions=(0, -1),
            backend=Backend.FRONTDOOR,
            dispatch=Own(lambda _: handler),
            refuse=refuse,
        )

    def _answer(self, version: int, code: ErrorCode) -> bytes:
        first = max((first for first in self.layouts if first <= version), default=None)
        if first is None or not self.versions[0] <= version <= self.versions[1]:
            raise WireError(
                self.name, "is not served, and its answer has no place for an error", version=version
            )
        flexible = version >= self.key.flexible_from
        text = f"{self.name} is not supported ({self.why})".encode()
        assert len(text) <= TEXT_BYTES_MAX, "its length must fit into one byte"
        fields = {
            **FIXED,
            **(COMPACT if flexible else PLAIN),
            "e": int(code).to_bytes(2, "big"),
            "m": bytes([len(text) + 1]) + text,
        }
        return b"".join(fields[letter] for letter in self.layouts[first]) + (NO_TAGS if flexible else b"")


_K = ApiKey
SECURITY: Final = "security"
TRANSACTIONS: Final = "transactions"
SHARE: Final = "share groups"
STREAMS: Final = "streams groups"
TELEMETRY: Final = "client telemetry"
NO_REPLICAS: Final = "object storage is the replication: there are no replicas to move"

SERVED: Final[Mapping[int, Api]] = exported(handlers, "API", Api)
"""By key, in the order of the keys. Those in `OFF` only while transactions are on."""

OFF: Final = (
    NotServed(_K.ADD_PARTITIONS_TO_TXN, (0, 5), TRANSACTIONS, {4: "tea"}),
    NotServed(_K.ADD_OFFSETS_TO_TXN, (0, 4), TRANSACTIONS, {0: "te"}),
    NotServed(_K.END_TXN, (0, 5), TRANSACTIONS, {0: "te", 5: "teph"}),
    NotServed(_K.WRITE_TXN_MARKERS, (1, 2), TRANSACTIONS),
    NotServed(_K.TXN_OFFSET_COMMIT, (0, 5), TRANSACTIONS),
    NotServed(_K.DESCRIBE_TRANSACTIONS, (0, 0), TRANSACTIONS),
    NotServed(_K.LIST_TRANSACTIONS, (0, 2), TRANSACTIONS, {0: "teaa"}),
)
"""What takes the place of served APIs while KAFSCALE_TRANSACTIONS is off."""

DEFERRED: Final = (
    NotServed(_K.CREATE_DELEGATION_TOKEN, (1, 3), SECURITY, {1: "essqqqsyt", 3: "essssqqqsyt"}),
    NotServed(_K.RENEW_DELEGATION_TOKEN, (1, 2), SECURITY, {1: "eqt"}),
    NotServed(_K.EXPIRE_DELEGATION_TOKEN, (1, 2), SECURITY, {1: "eqt"}),
    NotServed(_K.DESCRIBE_DELEGATION_TOKEN, (1, 3), SECURITY, {1: "eat"}),
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


def not_served(*, transactions: bool) -> tuple[NotServed, ...]:
    """`transactions`: whether they are on. This is the one place that decides which APIs that changes."""
    return (*(() if transactions else OFF), *DEFERRED, *REFUSED)


def served(*, transactions: bool) -> dict[int, Api]:
    """By key, in the order of the keys."""
    absent = {one.key for one in not_served(transactions=transactions)}
    return {key: api for key, api in SERVED.items() if api.key not in absent}


def advertised(*, transactions: bool) -> dict[int, tuple[int, int]]:
    """The versions in ApiVersions, by key."""
    shown = {key: api.versions for key, api in served(transactions=transactions).items()}
    shown.update((int(api.key), NOT_OFFERED) for api in not_served(transactions=transactions))
    return dict(sorted(shown.items()))
