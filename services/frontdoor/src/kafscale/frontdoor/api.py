"""The registration of one Kafka API: the value `API` of its module in `handlers`. Pure data.

apis.py collects these values. Version checks, routing, ApiVersions, metrics, docs/protocol/apis.md and the tests
read them, and nothing else says which service answers an API or on which stream its requests travel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol, assert_never

from kafscale.access.acl import ResourceType
from kafscale.access.rules import Need
from kafscale.frontdoor.key_fields import KeyOf, group_of, transactional_id_of
from kafscale.runtime.stream.age import AGE_MS_MAX
from kafscale.runtime.stream.frame import Outcome
from kafscale.runtime.stream.options import Stream
from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode


class Backend(Enum):
    """The service that answers. All values except FRONTDOOR are roles in the live view."""

    FRONTDOOR = "frontdoor"
    PRODUCE = "produce"
    FETCH = "fetch"
    COORDINATOR = "coordinator"
    ADMIN = "admin"


class Area(Enum):
    """What a request writes and a later request of its connection reads (request_order.py)."""

    RECORDS = "records"
    GROUPS = "groups"


class Codec(Protocol):
    """A module of `kafscale.wire.schema`. Its functions raise WireError."""

    def decode_request(self, buf: Buffer, version: int, /) -> Any: ...

    def encode_request(self, msg: Any, version: int, /) -> list[Buffer]: ...

    def decode_response(self, buf: Buffer, version: int, /) -> Any: ...

    def encode_response(self, msg: Any, version: int, /) -> list[Buffer]: ...


Refuse = Callable[[memoryview, int, ErrorCode], Sequence[Buffer]]
"""Request body, version, error → the body of the answer. Raises WireError if there is no such answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """The error code of each outcome of a group call. Clients retry on the first two, and not on INVALID_REQUEST."""

    not_executed: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
    unknown: ErrorCode = ErrorCode.NOT_COORDINATOR

    def of(self, outcome: Outcome) -> ErrorCode:
        match outcome:
            case Outcome.ANSWERED:
                return ErrorCode.NONE
            case Outcome.NOT_EXECUTED:
                return self.not_executed
            case Outcome.UNKNOWN:
                return self.unknown
            case Outcome.TOO_LARGE:
                return ErrorCode.INVALID_REQUEST
            case _ as never:
                assert_never(never)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """The whole request goes to one instance of the service (forwarding.py).

    `unavailable`: nothing was executed, and clients retry on this code. `unknown`: perhaps executed.
    `repeatable`: a request whose instance was lost may go to another one.
    `moves_log_starts`: from the reply's revision on, readers see the new log starts.
    `changes_access`: the answer waits until this front door knows the new users, ACLs or quotas (access.py).
    `cut_through`: a large answer goes to the client while it arrives.
    """

    unavailable: ErrorCode
    unknown: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    repeatable: bool = True
    carries_revision: bool = False
    moves_log_starts: bool = False
    changes_access: bool = False
    cut_through: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSlot:
    """A call about what lies in one slot: at most once, in order, to the coordinator of the slot (group_calls.py).

    `wait_ms`: how long the answer may take by design. `age_ms_max`: an older call must not take effect. What is left of
    it is the age budget of the request, so the coordinator knows how old the request is (runtime/stream/age.py).
    """

    key_of: KeyOf = group_of
    codes: Codes = Codes()
    wait_ms: Callable[[memoryview, int], int] | None = None
    age_ms_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSlots:
    """A call about several groups or transactional ids: split by coordinator, and the answers joined (group_calls.py).

    `asked` and `results` are the lists of them in the request and in the answer. Both kinds of entries are such a key,
    or have it as `key`. `failed` makes an entry of the answer, with an error, from one of the request.
    `age_ms_max`: as in ToSlot.
    """

    schema: Codec
    asked: str
    response: Callable[..., Any]
    results: str
    failed: Callable[[Any, ErrorCode], Any]
    key: str = "group_id"
    codes: Codes = Codes()
    age_ms_max: int | None = None


class Place(NamedTuple):
    """A partition as a request names it."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToOwners:
    """A call about partitions: split by the produce instance that owns each, and the answers joined (owner_calls.py).

    `places`: the partitions of a request, in its order. `share`: the request for some of them alone. `entries`: those
    of an instance's answer, by partition. `failed` makes an entry with an error. `answer`: the whole answer to a
    request, from the entry of each partition.
    """

    schema: Codec
    places: Callable[[Any], Sequence[Place]]
    share: Callable[[Any, Sequence[Place]], Any]
    entries: Callable[[Any], Mapping[Place, Any]]
    failed: Callable[[Place, ErrorCode], Any]
    answer: Callable[[Any, Callable[[Place], Any]], Any]


@dataclass(frozen=True, slots=True)
class Own:
    """A handler for this API alone. `make` builds it from the front door's parts (parts.py)."""

    make: Callable[..., Callable[..., None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """`refuse` writes the front door's own answer for an error. `large_answer`: the answer may be much larger than the
    request, so a connection has one such request at a time; Fetch has its own turns (fetch_turns.py). `asks`: the needs
    of `kafscale.access.rules` that the API's own handler asks; authorization.py asks those of a whole request.
    `names`: where the request has the name of a resource, if not in its first field; by the type of the resource.
    `patient`: the request may wait a few milliseconds, so that many share a message to the service (stream/client.py).
    `writes` and `reads`: a request that reads waits for the earlier ones of its connection that write the same area.
    `exclusive`: it changes what any other request may read or need (topics, configs, rights, log starts, whole groups).
    So it waits for all earlier requests of its connection, and later ones wait for it (request_order.py)."""

    key: ApiKey
    versions: tuple[int, int]
    backend: Backend
    dispatch: Forward | ToSlot | ToSlots | ToOwners | Own
    refuse: Refuse
    stream: Stream = Stream.CONTROL
    large_answer: bool = False
    asks: tuple[Need, ...] = ()
    names: Mapping[ResourceType, KeyOf] = field(default_factory=dict, hash=False)
    patient: bool = False
    writes: Area | None = None
    reads: Area | None = None
    exclusive: bool = False

    @property
    def name(self) -> str:
        return api_label(self.key)

    @property
    def alone(self) -> bool:
        """Whether nothing behind such a request is read before it is answered."""
        return self.large_answer or self.exclusive

    @property
    def may_wait(self) -> bool:
        """Whether a request may have to wait for earlier ones of its connection."""
        return self.exclusive or self.reads is not None

    def follows(self, earlier: "Api") -> bool:
        """Whether a request of this API waits for an earlier request of that API."""
        return self.exclusive or (self.reads is not None and self.reads is earlier.writes)


def to_admin(
    key: ApiKey,
    versions: tuple[int, int],
    refuse: Refuse,
    *,
    repeatable: bool = True,
    large_answer: bool = False,
    changes_access: bool = False,
) -> Api:
    """Certainly not executed: NOT_CONTROLLER, on which admin clients try again. Perhaps executed: REQUEST_TIMED_OUT.

    What must not be repeated, or changes access, is a change: it is exclusive."""
    return Api(
        key=key,
        versions=versions,
        backend=Backend.ADMIN,
        dispatch=Forward(
            unavailable=ErrorCode.NOT_CONTROLLER, repeatable=repeatable, changes_access=changes_access
        ),
        refuse=refuse,
        large_answer=large_answer,
        exclusive=changes_access or not repeatable,
    )


def to_group(
    key: ApiKey,
    versions: tuple[int, int],
    refuse: Refuse,
    *,
    wait_ms: Callable[[memoryview, int], int] | None = None,
    age_ms_max: int | None = None,
    patient: bool = False,
    writes: Area | None = Area.GROUPS,
    exclusive: bool = False,
) -> Api:
    """Not sent: COORDINATOR_NOT_AVAILABLE. Lost: NOT_COORDINATOR. On both clients ask for the coordinator again."""
    dispatch = ToSlot(wait_ms=wait_ms, age_ms_max=age_ms_max)
    return Api(
        key=key,
        versions=versions,
        backend=Backend.COORDINATOR,
        dispatch=dispatch,
        refuse=refuse,
        patient=patient,
        writes=writes,
        exclusive=exclusive,
    )


def to_transaction(
    key: ApiKey,
    versions: tuple[int, int],
    refuse: Refuse,
    *,
    names: Mapping[ResourceType, KeyOf] | None = None,
) -> Api:
    """Of one transactional id, and only while it is young: an EndTxn of the older protocol does not say which
    transaction it ends. So a copy that comes late must not take effect (docs/protocol/transactions.md, Age).

    The codes are those of a group's calls. On both, clients ask for the coordinator again and repeat the request."""
    return Api(
        key=key,
        versions=versions,
        backend=Backend.COORDINATOR,
        dispatch=ToSlot(key_of=transactional_id_of, age_ms_max=AGE_MS_MAX),
        refuse=refuse,
        names=names or {},
    )
