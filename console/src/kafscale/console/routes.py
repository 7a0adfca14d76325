"""One row per route, as data: the router, the page of docs and the tests of rights read these rows.

A screen's rows are in `api/`, with their handlers; `table.py` lists the screens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from kafscale.access.acl import Operation, ResourceType
from kafscale.console.answers import bad_request
from kafscale.console.audit import Audit
from kafscale.console.records.scan import Scans
from kafscale.console.records.tail import Tails
from kafscale.console.rights import Admits, Needs, Resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafscale.client.admin_client import Client
    from kafscale.console.decode.schemas import Schemas
    from kafscale.console.direct.stores import Stores
    from kafscale.console.logins import Login, Logins
    from kafscale.console.settings import ConsoleSettings

API: Final = "/api/v1"

Handler = Callable[["Call"], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`path` is below API, as aiohttp writes it: /topics/{topic}. `changes`: it changes the cluster, so a console that
    is read-only does not have it. `needs`: what is asked before the handler runs; a route that does what `needs` does
    not say is refused by the front door alone. `body`: the struct of a request with a body. `direct`: it reads etcd or
    the store, so `--no-direct` does not have it."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Handler
    needs: Needs | Admits
    changes: bool = False
    direct: bool = False
    body: type[msgspec.Struct] | None = None
    body_bytes_max: int = 2 * 1024 * 1024
    body_has_names: bool = True
    """False: the texts of the body are not names, so they may have every character."""
    audit: Callable[[Call], dict[str, str] | None] | None = None
    """What a line of the audit log says of a read, beside who asked and from where (law S8). Each route that is
    `direct` has it. None: this request has read neither etcd nor the store."""


def nothing_more(_: Call) -> dict[str, str]:
    """Of a read that has no question."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all requests share. `stores` is None with --no-direct."""

    settings: ConsoleSettings
    logins: Logins
    stores: Stores | None
    schemas: Schemas | None = None
    """None without --schema-registry."""
    tails: Tails = field(default_factory=Tails)
    scans: Scans = field(default_factory=Scans)
    audit: Audit = field(default_factory=Audit)


@dataclass(slots=True, kw_only=True)
class Call:
    """A request that was let in. `path` and `query` are decoded texts."""

    site: Site
    path: Mapping[str, str]
    query: Mapping[str, str]
    session_id: str | None
    peer: str
    """The address of the browser, or of the proxy."""
    person: Login | None
    body: Any = None
    """An instance of the route's struct."""
    new_session: str | None = None
    """Set by the login: the answer carries the cookie. Empty: the answer removes it."""

    @property
    def login(self) -> Login:
        assert self.person is not None, "only routes of Admits.ANYBODY run without a login"
        return self.person

    async def kafka(self, work: Callable[..., Any], *more: Any) -> Any:
        """`work(client, *more)` in a thread, as this login. `work` is a function of `kafscale.client`, whose first
        argument is the `Client`. Raises Problem."""
        return await self.login.run(work, *more)

    async def client(self) -> Client:
        """For a consumer or a producer: `client.settings(refused)` are those of this login."""
        return await self.login.client()

    async def seen(
        self, names: Iterable[str], operation: Operation, kind: ResourceType = ResourceType.TOPIC
    ) -> frozenset[str]:
        """The names that this login may use so. Rows of etcd or of the store are cut to them."""
        resources: Sequence[Resource] = [(kind, name) for name in names]
        await self.login.learn(resources)
        return frozenset(each[1] for each in resources if self.login.allows(each, operation))

    async def seen_groups(self, listed: Sequence[str]) -> frozenset[str]:
        """Those of the login's list of groups that it may describe. Raises Problem."""
        await self.login.learn_groups(listed)
        kind = ResourceType.GROUP
        return frozenset(name for name in listed if self.login.allows((kind, name), Operation.DESCRIBE))

    @property
    def stores(self) -> Stores:
        """Of a route that is `direct`."""
        assert self.site.stores is not None, "the router has no direct routes with --no-direct"
        return self.site.stores


def check_names(texts: Any) -> None:
    """Raises Problem if one of the texts in a dict or list, at any depth, has the character 0.

    confluent-kafka ends some names there: a deletion of the topic `a\\0b` would delete the topic `a`.
    """
    match texts:
        case str() if "\0" in texts:
            raise bad_request("a name has the character 0, which no name in Kafka has; leave it out")
        case dict():
            for key, value in texts.items():
                check_names(key)
                check_names(value)
        case list():
            for each in texts:
                check_names(each)


def decoded(body: bytes, kind: type[msgspec.Struct], has_names: bool = True) -> msgspec.Struct:
    """Structs have `forbid_unknown_fields=True`. Raises Problem."""
    try:
        found = msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as wrong:
        raise bad_request(f"the body is wrong: {wrong}") from wrong
    if has_names:
        check_names(msgspec.to_builtins(found))
    return found
