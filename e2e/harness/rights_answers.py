"""What each system answers to each user, reduced to what authorization decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import api_versions

from e2e.harness.api_requests import ROWS
from e2e.harness.kafka_commands import in_words
from e2e.harness.oracles import codec_of, errors_in, read_answer, request_frame
from e2e.harness.prepared import NO_ID, World
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import ask
from e2e.harness.rights_rows import Case
from e2e.harness.rights_users import IN_EACH_VERSION, START, User
from e2e.harness.secured_pair import System
from e2e.harness.services import until

READY_S: Final = 120.0
READY_GROUPS: Final = ((ApiKey.FIND_COORDINATOR, 2), (ApiKey.OFFSET_FETCH, 7), (ApiKey.INIT_PRODUCER_ID, 3))
ONE_OF_EACH_SERVICE: Final = (
    (ApiKey.LIST_OFFSETS, 7),
    (ApiKey.OFFSET_FETCH, 7),
    (ApiKey.CREATE_PARTITIONS, 3),
)
"""API and version: of those that decide, which are fetch, coordinator and admin."""
DENIALS: Final = {29, 30, 31, 53}
VALUES: Final = {
    "name",
    "topic",
    "topic_name",
    "group_id",
    "groups",
    "key",
    "resource_name",
    "user",
    "transactional_id",
    "principal",
    "host",
    "operation",
    "permission_type",
    "num_partitions",
    "replication_factor",
}
"""Fields whose values are compared."""
PRESENT: Final = {
    "topic_id",
    "configs",
    "node_id",
    "producer_id",
    "leader_id",
    "protocol_type",
    "protocol_data",
}
"""Fields that a denial leaves at their default. Their other values differ between systems."""
DEFAULTS: Final = ("None", "-1", "", "b''", "[]", "()", str(NO_ID))
OPERATIONS: Final = "authorized_operations"


@dataclass(frozen=True, slots=True)
class Seen:
    """What counts of an answer, in a form that can be compared and read."""

    text: str
    denied: bool = field(compare=False)


def what_counts(answer: Any, *, denials_only: bool = False) -> Seen:
    """Error codes, names, operations, and whether fields that a denial hides are there."""
    codes: set[int] = set()
    kept = _kept(answer, codes)
    denied = bool(codes & DENIALS)
    return Seen(repr(sorted(codes & DENIALS)) if denials_only else repr(kept), denied)


def _kept(value: Any, codes: set[int]) -> Any:
    """Adds the error codes that it finds to `codes`. None: nothing that counts."""
    if isinstance(value, Mapping):
        pairs = ((name, _field(name, each, codes)) for name, each in value.items())
        kept = {name: each for name, each in pairs if each is not None}
        message = in_words(value.get("error_message") or "")
        if (code := value.get("error_code")) in DENIALS and message not in ("", ErrorCode(code).message):
            kept["error_message"] = message  # clients have the words of a code themselves
        return kept
    if isinstance(value, (list, tuple)):
        items = [_kept(each, codes) for each in value]
        return sorted((item for item in items if item and not _internal(item)), key=repr) or None
    return None


def _field(name: str, value: Any, codes: set[int]) -> Any:
    if name.endswith("error_code"):
        code = int(value or 0)  # a tagged field that is not there is None
        codes.add(code)
        return code
    if name.endswith(OPERATIONS) and value is not None:
        return sorted(value) if isinstance(value, (set, frozenset, list)) else int(value)
    if name in PRESENT:
        return "not there" if str(value) in DEFAULTS else "there"
    if name == "members":
        return len(value)
    if name in VALUES and not isinstance(value, (list, tuple, Mapping)):
        return "null" if value is None else value
    return _kept(value, codes) or None


def _internal(item: Any) -> bool:
    """A topic of Kafka's own, which KafScale does not need."""
    return isinstance(item, dict) and any(str(item.get(name, "")).startswith("__") for name in VALUES)


# -- asking ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    label: str
    version: int
    user: str


def offered(system: System) -> dict[int, tuple[int, int]]:
    """The versions that the system serves, by API key."""
    with Raw.to(system.plain) as raw:
        answered = ask(raw, api_versions, 0, api_versions.ApiVersionsRequest())
    return {row.api_key: (row.min_version, row.max_version) for row in answered.api_keys}


@dataclass(slots=True)
class Asking:
    """Asks one system. `versions`: by API key those that both systems serve."""

    system: System
    versions: Mapping[int, tuple[int, int]]
    _connections: dict[str, Raw] = field(default_factory=dict)

    def everything(self, cases: Sequence[Case], people: Sequence[User]) -> dict[Asked, Seen]:
        """Makes the ACLs of the users, and what every one of them is answered to each case."""
        self.system.create_acls(list(dict.fromkeys(acl for user in people for acl in user.acls())))
        self._wait_for(people[-1].name)
        found: dict[Asked, Seen] = {}
        try:
            with Raw.to(self.system.plain) as admin:
                for case in cases:
                    *older, newest = versions_of(case, self.versions)
                    few = [user.name for user in people if user.name in IN_EACH_VERSION]
                    for version in older:
                        found |= self._case(admin, case, version, few)
                    found |= self._case(admin, case, newest, [user.name for user in people])
        finally:
            for raw in self._connections.values():
                raw.socket.close()
        return found

    def _case(self, admin: Raw, case: Case, version: int, names: Sequence[str]) -> dict[Asked, Seen]:
        found = {}
        world = case.prepare(admin, case.world(version))
        for name in names:
            if case.fleeting:
                world = case.prepare(admin, case.world(version))
            found[Asked(case.label, version, name)] = self._ask(case, version, world, name)
        return found

    def _ask(self, case: Case, version: int, world: World, user: str) -> Seen:
        try:
            answer = self._answer(user, case.key, version, case.content(world, version))
        except Closed:
            self._connections.pop(user).socket.close()
            return Seen("the connection was closed", denied=False)
        return what_counts(answer, denials_only=bool(case.differs))

    def _answer(self, user: str, key: int, version: int, content: Mapping[str, Any]) -> Any:
        raw = self._connections.get(user)
        if raw is None:
            raw = self._connections[user] = self.system.connect(user)
        raw.frame(request_frame(key, version, version, content))
        correlation_id, answer = read_answer(key, version, raw.answer())
        assert correlation_id == version
        return answer

    def _wait_for(self, last: str) -> None:
        """Until every group can be asked about, and each process has seen the ACLs of the last user."""
        world = ready_for_groups(self.system)
        with Raw.to(self.system.plain) as admin:
            world = ROWS[ApiKey.LIST_OFFSETS].prepare(admin, world)
        for key, version in ONE_OF_EACH_SERVICE:
            until(f"{last} has its rights", partial(self._served, last, key, version, world), READY_S)

    def _served(self, user: str, key: int, version: int, world: World) -> bool:
        return set(errors_in(self._answer(user, key, version, ROWS[key].content(world, version)))) == {0}


def ready_for_groups(system: System) -> World:
    """Waits until groups and producer ids are served. Kafka creates the topic behind them at the first question."""
    with Raw.to(system.plain) as admin:
        for number in range(10):
            world = World(topic=f"{START}ready", group=f"{START}ready-{number}", dry=True)
            until("a coordinator and a producer id are there", partial(_coordinated, admin, world), READY_S)
    return world


def _coordinated(admin: Raw, world: World) -> bool:
    for key, version in READY_GROUPS:
        admin.frame(request_frame(key, version, version, ROWS[key].content(world, version)))
        if set(errors_in(read_answer(key, version, admin.answer())[1])) != {0}:
            return False
    return True


def versions_of(case: Case, offered_by_both: Mapping[int, tuple[int, int]]) -> list[int]:
    """Those in which the case is asked, in their order."""
    first, last = offered_by_both[case.key]
    wanted = range(max(first, case.versions[0]), min(last, case.versions[1]) + 1)
    return [version for version in wanted if codec_of(case.key, version) is not None]
