"""What each API asks of the authorizer: one row per API key. Data; the handlers take the names from the request.

A row is a list of needs, in the order in which Kafka asks. A need is met if one of its rights is there. A need says in
which case it applies (`when`), which process decides (`side`), what a denial does to the answer (`denial`), and the
error code. Authorization comes before existence: a denied name and an absent one look alike. Sources: KafkaApis,
AclApis and ControllerApis of Apache Kafka 4.3.

An API that is served has a row, and its process asks every need of its side: `check_enforced` ends a process that
does not, when it starts. A test compares the rows with the front door's registrations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from kafscale.access.acl import CLUSTER_NAME, Operation, ResourceType
from kafscale.access.authorizer import Rights
from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.errors import ErrorCode


class Side(Enum):
    """The process that decides. It is the one that decodes the names anyway."""

    FRONT_DOOR = "F"
    SERVICE = "S"
    """Of Fetch too: a service cannot know whether it gets a whole request or a share of one, so it always asks."""


class When(Enum):
    """The case in which a need applies."""

    ALWAYS = "always"
    TRANSACTIONAL_ID = "the request has a transactional id"
    NO_TRANSACTIONAL_ID = "the request has no transactional id"
    OF_CLIENT = "versions 0-3, which clients send"
    OF_BROKER = "versions 4 and later, which brokers send"
    TWO_PHASE_COMMIT = "the request enables two-phase commit (KIP-939)"
    CLIENT = "the reader is a client"
    REPLICA = "the reader is a follower: it has a replica id"
    NAMED = "topics that the request names"
    ALL = "the request asks for all topics"
    BY_ID = "topics that the request names by id"
    EXPRESSION = "topics that match the request's regular expression"
    CREATION = "topics that do not exist, if the request creates them"
    GROUP_KEY = "the key is a group (key type 0)"
    TRANSACTION_KEY = "the key is a transactional id (key type 1)"
    TOPIC_CONFIGS = "configs of topics"
    GROUP_CONFIGS = "configs of groups"
    CLUSTER_CONFIGS = "configs of brokers, loggers and client metrics"


class Denial(Enum):
    """What the answer is if the need is not met."""

    FAILS_REQUEST = "the error for the whole request"
    FAILS_ENTRY = "the error at each entry that is denied"
    HIDES_NAME = "the error at each entry that is denied, and a null name"
    HIDES_CONFIGS = "the entry without its configs, and the error in topic_config_error_code"
    HIDES_MEMBERS = "the error at the group, and no members"
    LEFT_OUT = "no error: the answer lacks what is denied"


@dataclass(frozen=True, slots=True)
class Right:
    """An operation on the resource that is named, or on any resource of the type."""

    operation: Operation
    resource_type: ResourceType
    any_name: bool = False

    def held(self, rights: Rights, name: str) -> bool:
        """True if the authorizer allows it. A right on the cluster does not use `name`."""
        if self.any_name:
            return rights.allows_any(self.operation, self.resource_type)
        on_cluster = self.resource_type is ResourceType.CLUSTER
        return rights.allows(self.operation, self.resource_type, CLUSTER_NAME if on_cluster else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One question. `code` is the error of the denial."""

    any_of: tuple[Right, ...]
    code: ErrorCode
    side: Side
    when: When = When.ALWAYS
    denial: Denial

    def met(self, rights: Rights, name: str) -> bool:
        """True if one of the rights is there. `name` is the topic, group or transactional id."""
        for right in self.any_of:  # noqa: SIM110  (a generator costs half a microsecond for each topic)
            if right.held(rights, name):
                return True
        return False


CODES: Final[Mapping[ResourceType, ErrorCode]] = MappingProxyType(
    {
        ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""The error code of a denial, by the type of the resource."""

_F, _S = Side.FRONT_DOOR, Side.SERVICE


def _need(
    operation: Operation,
    resource_type: ResourceType,
    side: Side,
    denial: Denial = Denial.FAILS_ENTRY,
    when: When = When.ALWAYS,
    *,
    instead: Right | None = None,
    code: ErrorCode | None = None,
) -> Need:
    """`instead` is a right that makes the need unnecessary. It is asked first."""
    right = Right(operation, resource_type)
    return Need(
        any_of=(right,) if instead is None else (instead, right),
        code=code or CODES[resource_type],
        side=side,
        when=when,
        denial=denial,
    )


def _cluster(operation: Operation) -> tuple[Need, ...]:
    return (_need(operation, ResourceType.CLUSTER, _F, Denial.FAILS_REQUEST),)


def _group(operation: Operation, denial: Denial = Denial.FAILS_REQUEST) -> Need:
    return _need(operation, ResourceType.GROUP, _F, denial)


def _topic(
    operation: Operation,
    side: Side = _S,
    denial: Denial = Denial.FAILS_ENTRY,
    when: When = When.ALWAYS,
    instead: Right | None = None,
) -> Need:
    return _need(operation, ResourceType.TOPIC, side, denial, when, instead=instead)


def _transaction(operation: Operation, when: When = When.ALWAYS) -> Need:
    return _need(operation, ResourceType.TRANSACTIONAL_ID, _F, Denial.FAILS_REQUEST, when)


def _configs(operation: Operation) -> tuple[Need, ...]:
    return tuple(
        _need(operation, resource_type, _S, Denial.FAILS_ENTRY, when)
        for resource_type, when in (
            (ResourceType.TOPIC, When.TOPIC_CONFIGS),
            (ResourceType.GROUP, When.GROUP_CONFIGS),
            (ResourceType.CLUSTER, When.CLUSTER_CONFIGS),
        )
    )


def _on_cluster(operation: Operation) -> Right:
    return Right(operation, ResourceType.CLUSTER)


_K, _O = ApiKey, Operation
_DESCRIBE_ALL_TOPICS: Final = _topic(_O.DESCRIBE, denial=Denial.LEFT_OUT, when=When.ALL)

ROWS: Final[Mapping[ApiKey, tuple[Need, ...]]] = MappingProxyType(
    {
        _K.PRODUCE: (
            _transaction(_O.WRITE, When.TRANSACTIONAL_ID),
            _topic(_O.WRITE, _F),
        ),
        _K.FETCH: (
            _topic(_O.READ, when=When.CLIENT),
            _need(
                _O.CLUSTER_ACTION,
                ResourceType.CLUSTER,
                _S,
                when=When.REPLICA,
                code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ),
        ),
        _K.LIST_OFFSETS: (_topic(_O.DESCRIBE),),
        _K.METADATA: (
            _topic(_O.DESCRIBE, when=When.NAMED),
            _topic(_O.DESCRIBE, denial=Denial.HIDES_NAME, when=When.BY_ID),
            _DESCRIBE_ALL_TOPICS,
            _topic(_O.CREATE, when=When.CREATION, instead=_on_cluster(_O.CREATE)),
        ),
        _K.OFFSET_COMMIT: (_group(_O.READ), _topic(_O.READ)),
        _K.OFFSET_FETCH: (
            _group(_O.DESCRIBE, Denial.FAILS_ENTRY),
            _topic(_O.DESCRIBE, when=When.NAMED),
            _DESCRIBE_ALL_TOPICS,
        ),
        _K.FIND_COORDINATOR: (
            _need(_O.DESCRIBE, ResourceType.GROUP, _F, when=When.GROUP_KEY),
            _need(_O.DESCRIBE, ResourceType.TRANSACTIONAL_ID, _F, when=When.TRANSACTION_KEY),
        ),
        _K.JOIN_GROUP: (_group(_O.READ),),
        _K.HEARTBEAT: (_group(_O.READ),),
        _K.LEAVE_GROUP: (_group(_O.READ),),
        _K.SYNC_GROUP: (_group(_O.READ),),
        _K.DESCRIBE_GROUPS: (_group(_O.DESCRIBE, Denial.FAILS_ENTRY),),
        _K.LIST_GROUPS: (
            _need(_O.DESCRIBE, ResourceType.GROUP, _F, Denial.LEFT_OUT, instead=_on_cluster(_O.DESCRIBE)),
        ),
        _K.SASL_HANDSHAKE: (),
        _K.API_VERSIONS: (),
        _K.CREATE_TOPICS: (
            _topic(_O.CREATE, instead=_on_cluster(_O.CREATE)),
            _topic(_O.DESCRIBE_CONFIGS, denial=Denial.HIDES_CONFIGS),
        ),
        _K.DELETE_TOPICS: (
            _topic(_O.DESCRIBE, denial=Denial.HIDES_NAME, when=When.BY_ID, instead=_on_cluster(_O.DELETE)),
            _topic(_O.DELETE, instead=_on_cluster(_O.DELETE)),
        ),
        _K.DELETE_RECORDS: (_topic(_O.DELETE),),
        _K.INIT_PRODUCER_ID: (
            _transaction(_O.WRITE, When.TRANSACTIONAL_ID),
            _transaction(_O.TWO_PHASE_COMMIT, When.TWO_PHASE_COMMIT),
            Need(
                any_of=(
                    _on_cluster(_O.IDEMPOTENT_WRITE),
                    Right(_O.WRITE, ResourceType.TOPIC, any_name=True),
                ),
                code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                side=_F,
                when=When.NO_TRANSACTIONAL_ID,
                denial=Denial.FAILS_REQUEST,
            ),
        ),
        # CLUSTER_ACTION is what brokers have; clients ask this API since KIP-320.
        _K.OFFSET_FOR_LEADER_EPOCH: (_topic(_O.DESCRIBE, instead=_on_cluster(_O.CLUSTER_ACTION)),),
        _K.ADD_PARTITIONS_TO_TXN: (
            _transaction(_O.WRITE, When.OF_CLIENT),
            _need(_O.CLUSTER_ACTION, ResourceType.CLUSTER, _F, Denial.FAILS_REQUEST, When.OF_BROKER),
            _topic(_O.WRITE, when=When.OF_CLIENT),
        ),
        _K.ADD_OFFSETS_TO_TXN: (_transaction(_O.WRITE), _group(_O.READ)),
        _K.END_TXN: (_transaction(_O.WRITE),),
        # ALTER is what operators have; CLUSTER_ACTION is what brokers have.
        _K.WRITE_TXN_MARKERS: (
            _need(
                _O.CLUSTER_ACTION,
                ResourceType.CLUSTER,
                _F,
                Denial.FAILS_REQUEST,
                instead=_on_cluster(_O.ALTER),
            ),
        ),
        _K.TXN_OFFSET_COMMIT: (_transaction(_O.WRITE), _group(_O.READ), _topic(_O.READ)),
        _K.DESCRIBE_ACLS: _cluster(_O.DESCRIBE),
        _K.CREATE_ACLS: _cluster(_O.ALTER),
        _K.DELETE_ACLS: _cluster(_O.ALTER),
        _K.DESCRIBE_CONFIGS: _configs(_O.DESCRIBE_CONFIGS),
        _K.ALTER_CONFIGS: _configs(_O.ALTER_CONFIGS),
        _K.DESCRIBE_LOG_DIRS: _cluster(_O.DESCRIBE),
        _K.SASL_AUTHENTICATE: (),
        _K.CREATE_PARTITIONS: (_topic(_O.ALTER),),
        _K.DELETE_GROUPS: (_group(_O.DELETE, Denial.FAILS_ENTRY),),
        _K.ELECT_LEADERS: _cluster(_O.ALTER),
        _K.INCREMENTAL_ALTER_CONFIGS: _configs(_O.ALTER_CONFIGS),
        _K.LIST_PARTITION_REASSIGNMENTS: _cluster(_O.DESCRIBE),
        _K.OFFSET_DELETE: (_group(_O.DELETE), _topic(_O.READ)),
        _K.DESCRIBE_CLIENT_QUOTAS: _cluster(_O.DESCRIBE_CONFIGS),
        _K.ALTER_CLIENT_QUOTAS: _cluster(_O.ALTER_CONFIGS),
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(_O.DESCRIBE),
        _K.ALTER_USER_SCRAM_CREDENTIALS: _cluster(_O.ALTER),
        _K.DESCRIBE_CLUSTER: (),
        _K.DESCRIBE_PRODUCERS: (_topic(_O.READ, _F),),
        _K.DESCRIBE_TRANSACTIONS: (
            _need(_O.DESCRIBE, ResourceType.TRANSACTIONAL_ID, _F),
            _topic(_O.DESCRIBE, denial=Denial.LEFT_OUT),
        ),
        _K.LIST_TRANSACTIONS: (_need(_O.DESCRIBE, ResourceType.TRANSACTIONAL_ID, _F, Denial.LEFT_OUT),),
        _K.CONSUMER_GROUP_HEARTBEAT: (
            _group(_O.READ),
            _topic(_O.DESCRIBE, denial=Denial.FAILS_REQUEST, when=When.NAMED),
            _topic(_O.DESCRIBE, denial=Denial.LEFT_OUT, when=When.EXPRESSION),
        ),
        _K.CONSUMER_GROUP_DESCRIBE: (
            _group(_O.DESCRIBE, Denial.FAILS_ENTRY),
            _topic(_O.DESCRIBE, denial=Denial.HIDES_MEMBERS),
        ),
        _K.LIST_CONFIG_RESOURCES: _cluster(_O.DESCRIBE_CONFIGS),
        _K.DESCRIBE_TOPIC_PARTITIONS: (
            _topic(_O.DESCRIBE, when=When.NAMED),
            _DESCRIBE_ALL_TOPICS,
        ),
    }
)
"""By API key. An empty row: the API needs no right."""


def needs_of(key: ApiKey, side: Side | None = None) -> tuple[Need, ...]:
    """The needs of an API, in the order in which they are asked; with `side`, those that it decides.

    Raises KeyError for an API without a row: such an API must not be served.
    """
    return tuple(need for need in ROWS[key] if side is None or need.side is side)


class NotEnforced(Exception):
    """A process serves an API without asking what the API's row says. It must not start."""


def check_enforced(served: Iterable[int], asked: Mapping[int, Iterable[Need]], side: Side) -> None:
    """Raises NotEnforced if an API that is served has no row, or if a need of the side is not asked.

    `served`: the API keys of the process. `asked`: by API key, the needs that its handlers ask.
    """
    for key in served:
        if key not in ROWS:
            raise NotEnforced(f"{api_label(key)} has no row in kafscale.access.rules")
        missing = [need for need in needs_of(ApiKey(key), side) if need not in asked.get(key, ())]
        if missing:
            raise NotEnforced(f"{api_label(key)} does not ask {missing[0]}")
