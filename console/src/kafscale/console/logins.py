"""How a person, or the console itself, is a client of the cluster.

Law: every request to Kafka is made as the login that asked for it; the console has no identity that could see more,
but for what `direct/` reads from etcd and the store. Passwords are only in the client configuration of a login.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException, TopicCollection
from kafscale.access.acl import CLUSTER_NAME, AclFilter, Operation, ResourceType
from kafscale.access.principals import ANONYMOUS, Principal, user
from kafscale.client.acls import list_acls
from kafscale.client.admin_client import (
    ANSWER_TIMEOUT_S,
    Client,
    KafkaTrouble,
    asked,
    failure,
    patiently,
    trouble_of,
)
from kafscale.client.login import LoginFailed
from kafscale.client.request import HANDSHAKE_VERSION, connected
from kafscale.client.security import ClientSecurity, PasswordLogin
from kafscale.client.topics import topic_names
from kafscale.console.answers import Problem, problem_of
from kafscale.console.rights import Held, KnownRights, Resource, describable_groups
from kafscale.console.sessions import ID_BYTES, Sessions
from kafscale.runtime.addresses import split_address
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_groups, sasl_handshake

CLIENT_ID: Final = "kafscale-console"
LOGIN_TIMEOUT_S: Final = 10.0
CALLS_MAX: Final = 8
"""At once, of one login."""
_STRONGEST_FIRST: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_NONE: Final = "no mechanism"
"""Offered on purpose: a server answers it with the mechanisms that it has."""
_GROUPS_AT_ONCE: Final = 500
_DESCRIBE_GROUPS_VERSION: Final = 5

T = TypeVar("T")


class Mode(Enum):
    OPEN = "open"
    """The cluster asks for no login."""
    FIXED = "fixed"
    """Everyone acts as the user of --command-config."""
    PERSONAL = "personal"
    """Everyone logs in."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where the cluster is. In mode PERSONAL `security` has no login."""

    bootstrap: str
    security: ClientSecurity

    @property
    def mode(self) -> Mode:
        if self.security.login is not None or self.security.own is not None:
            return Mode.FIXED
        return Mode.PERSONAL if self.security.protocol.uses_sasl else Mode.OPEN


class Login:
    """One identity. The client is made at the first request, and made again if that failed."""

    def __init__(self, entrance: Entrance, user: str | None, mechanism: str | None) -> None:
        self.user, self.mechanism = user, mechanism
        self.rights = KnownRights()
        self.calls = 0
        self.ended = False
        self._entrance = entrance
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def run(self, work: Callable[..., T], *more: Any) -> T:
        """`work(client, *more)` in a thread. Raises Problem for what the front door refuses."""
        try:
            return await asyncio.to_thread(work, await self.client(), *more)
        except KafkaTrouble as trouble:
            raise problem_of(trouble) from trouble

    async def client(self) -> Client:
        """Raises KafkaTrouble."""
        async with self._connecting:
            if self._client is None:
                entrance = self._entrance
                self._client = await asyncio.to_thread(
                    lambda: Client(entrance.bootstrap, entrance.security, client_id=CLIENT_ID)
                )
            return self._client

    async def learn(self, resources: Iterable[Resource]) -> None:
        """Asks the front door what this login may do with these, if that is not known. Raises Problem."""
        if unknown := self.rights.unknown(resources, time.monotonic()):
            said = await self.run(operations_on, unknown)
            self.rights.learn(said, time.monotonic())

    async def learn_groups(self, listed: Iterable[str]) -> None:
        """`learn` of the groups that this login's list has. Does not ask about those that it surely may not describe: a
        login that may describe the cluster lists all groups, and each question would be a denial (law S4)."""
        cluster, now_s = (ResourceType.CLUSTER, CLUSTER_NAME), time.monotonic()
        await self.learn([cluster])
        new = self.rights.unknown(((ResourceType.GROUP, name) for name in listed), now_s)
        operations = self.rights.operations(cluster, now_s)
        if new and Operation.DESCRIBE in operations:
            names = [name for _, name in new]
            perhaps = await self.run(perhaps_describable, names, operations, self._principal)
            denied = {each: frozenset[Operation]() for each in new if each[1] not in perhaps}
            self.rights.learn(denied, time.monotonic())
        await self.learn(new)

    @property
    def _principal(self) -> Principal | None:
        """None: the front door makes it of a certificate or a token."""
        if self.user is not None:
            return user(self.user)
        return ANONYMOUS if self._entrance.mode is Mode.OPEN else None

    def allows(self, resource: Resource, operation: Operation) -> bool:
        """After `learn`."""
        return self.rights.allows(resource, operation, time.monotonic())

    def close(self) -> None:
        """Its threads end when librdkafka's client is collected."""
        self._client = None
        self.ended = True


class Logins:
    """Who acts for a request: the person of the session's cookie, or the same identity for everyone."""

    def __init__(self, entrance: Entrance) -> None:
        self.entrance = entrance
        self.sessions: Sessions[Login] = Sessions(Login.close)
        login = entrance.security.login
        self._everyone = (
            None
            if entrance.mode is Mode.PERSONAL
            else Login(
                entrance,
                login.user if isinstance(login, PasswordLogin) else None,
                login.mechanism if isinstance(login, PasswordLogin) else None,
            )
        )

    def of(self, session_id: str | None) -> Login | None:
        if self._everyone is not None:
            return self._everyone
        return None if session_id is None else self.sessions.find(session_id, time.monotonic())

    async def begin(self, user: str, password: str) -> str:
        """The new session's id. Raises Problem: 401 if the server refuses, 503 if it does not answer."""
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                mechanism = await self._mechanism()
                security = replace(self.entrance.security, login=PasswordLogin(mechanism, user, password))
                async with connected(self._address, security):
                    pass
        except LoginFailed as refused:
            raise Problem(HTTPStatus.UNAUTHORIZED, "login_failed", f"not logged in: {refused}") from refused
        except (OSError, EOFError, TimeoutError) as away:
            sentence = f"no Kafka server answers at {self.entrance.bootstrap}; try again in a moment"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", sentence) from away
        login = Login(Entrance(self.entrance.bootstrap, security), user, mechanism)
        session_id = secrets.token_urlsafe(ID_BYTES)
        self.sessions.begin(session_id, user, login, time.monotonic())
        return session_id

    async def _mechanism(self) -> str:
        """The strongest that the server offers. PLAIN sends the password, so only over TLS. Raises LoginFailed."""
        offer = sasl_handshake.SaslHandshakeRequest(mechanism=_NONE)
        async with connected(self._address, self.entrance.security) as connection:
            offered = (await connection.ask(sasl_handshake, offer, HANDSHAKE_VERSION)).mechanisms
        for mechanism in _STRONGEST_FIRST:
            safe = mechanism != "PLAIN" or self.entrance.security.protocol.uses_tls
            if mechanism in offered and safe:
                return mechanism
        raise LoginFailed(f"the server offers {', '.join(offered) or 'nothing'}, which a form cannot do")

    @property
    def _address(self) -> tuple[str, int]:
        return split_address(self.entrance.bootstrap.split(",")[0].strip())


def operations_on(client: Client, resources: Iterable[Resource]) -> dict[Resource, frozenset[Operation]]:
    """What this login may do with each. One that it may not see, or that does not exist, has no operations."""
    found: dict[Resource, frozenset[Operation]] = dict.fromkeys(resources, frozenset())
    topics = [name for kind, name in found if kind is ResourceType.TOPIC]
    groups = [name for kind, name in found if kind is ResourceType.GROUP]
    futures: dict[Resource, Any] = {}
    with client.failing("the rights of this login"):
        if topics:
            asked = client.admin.describe_topics(
                TopicCollection(topics), include_authorized_operations=True, request_timeout=ANSWER_TIMEOUT_S
            )
            futures |= {(ResourceType.TOPIC, name): future for name, future in asked.items()}
        for resource in found:
            if resource[0] is ResourceType.CLUSTER:
                futures[resource] = client.admin.describe_cluster(include_authorized_operations=True)
    return found | _said(futures) | _of_groups(client, groups)


def perhaps_describable(
    client: Client, groups: Sequence[str], cluster: frozenset[Operation], principal: Principal | None
) -> frozenset[str]:
    """The groups to ask about, by the ACLs. `cluster`: what the login may do with it, with DESCRIBE."""
    acls, topics = list_acls(client, [AclFilter()]), topic_names(client)
    held = Held(principal=principal, acls=acls, cluster=cluster, topics=topics)
    return frozenset(describable_groups(groups, held))


def _of_groups(client: Client, names: Sequence[str]) -> dict[Resource, frozenset[Operation]]:
    """By hand: AdminClient sends two requests for each group. This version has the rights on every name that the login
    may describe, also on one that does not exist, and a front door answers for all coordinators."""

    def ask(some: list[str]) -> list[describe_groups.DescribeGroupsResponseDescribedGroup]:
        message = describe_groups.DescribeGroupsRequest(groups=some, include_authorized_operations=True)
        answer = asked(client, "the rights of this login", describe_groups, message, _DESCRIBE_GROUPS_VERSION)
        for group in answer.groups:
            trouble = failure(f"group '{group.group_id}'", group.error_code)
            if group.error_code != ErrorCode.NONE and trouble.passes:
                raise trouble
        return answer.groups

    found: dict[Resource, frozenset[Operation]] = {}
    for at in range(0, len(names), _GROUPS_AT_ONCE):
        for group in patiently(partial(ask, list(names[at : at + _GROUPS_AT_ONCE]))):
            said = group.authorized_operations if group.error_code == ErrorCode.NONE else 0
            allowed = frozenset(each for each in Operation if each > Operation.ANY and said >> each & 1)
            found[ResourceType.GROUP, group.group_id] = allowed
    return found


def _said(futures: Mapping[Resource, Any]) -> dict[Resource, frozenset[Operation]]:
    """Raises KafkaTrouble if the front door does not answer: silence is neither yes nor no."""
    said: dict[Resource, frozenset[Operation]] = {}
    for resource, future in futures.items():
        try:
            operations = future.result().authorized_operations
        except KafkaException as exception:
            trouble = trouble_of("the rights of this login", exception.args[0])
            if trouble.code is None or trouble.passes:
                raise trouble from exception
            continue
        said[resource] = frozenset(Operation[each.name] for each in operations or ())
    return said
