"""Asks the authorizer before a request leaves the front door.

Laws: this module is the one place that looks up a connection's rights. Needs that fail a whole request are asked here,
from the API's row, before its handler sees the request: no handler can forget them. The name that a need is about is
the request's first field, or where the API's registration says (`Api.names`). Calls about several groups or
partitions are asked where they are split (group_calls.py, owner_calls.py). The handler of an API asks all other needs,
and names them in its registration (`Api.asks`). A need that nobody asks ends the process at its start. Without an
authorizer, handlers are called directly.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kafscale.access.acl import ResourceType
from kafscale.access.principals import Principal, peer_host
from kafscale.access.rules import ROWS, Denial, Need, Side, When, check_enforced, needs_of
from kafscale.frontdoor.api import Api, ToOwners, ToSlots
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.key_fields import text_field
from kafscale.frontdoor.refusals import refuse_exchange
from kafscale.runtime.authorization import EVERYTHING, Asker, Authorization
from kafscale.wire.apis import ApiKey

Handler = Callable[[Exchange], None]
TWO_PHASE_COMMIT_FROM: Final = 6
"""The first version of InitProducerId with the flag. It is not served; the flag is not in the first field."""
OF_BROKERS_FROM: Final = 4
"""The first version of AddPartitionsToTxn that brokers of Kafka send. Its first field is no text."""
APPLIES: Final[Mapping[When, Callable[[str | None], bool]]] = {
    When.ALWAYS: lambda _: True,
    When.TRANSACTIONAL_ID: lambda name: name is not None,
    When.NO_TRANSACTIONAL_ID: lambda name: name is None,
    When.OF_CLIENT: lambda _: True,
    When.OF_BROKER: lambda _: True,
}
"""The cases that a name in the request decides, in the versions that have the case."""


class RequestAuthorizer:
    """Answers what the principal of a connection may do."""

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self.enforces = authorization.authorizer is not None

    def rights_of(self, exchange: Exchange) -> Asker:
        authorizer = self._authorization.authorizer
        if authorizer is None:
            return EVERYTHING
        caller = exchange.caller
        rights = caller.rights
        if rights is None or rights.principal != caller.principal:
            rights = authorizer.rights(Principal(caller.principal), peer_host(caller.peer))
            caller.rights = rights
        return self._authorization.asker(rights, caller.listener, exchange.request.header.api_key)

    def guarded(self, api: Api, handler: Handler) -> Handler:
        """The handler, which gets only requests that meet the needs of a whole request."""
        needs = whole_needs(api)
        if not self.enforces or not needs:
            return handler

        def ask(exchange: Exchange) -> None:
            if self._meets(exchange, needs):
                handler(exchange)

        return ask

    def _meets(self, exchange: Exchange, needs: tuple[Need, ...]) -> bool:
        """False: the exchange has its answer. Raises WireError."""
        asker = self.rights_of(exchange)
        for need in needs:
            if not in_version(need, exchange.version):
                continue
            name = name_in(exchange, need) if reads_name(need) else None
            if APPLIES[need.when](name) and not asker.allows(need, name or ""):
                refuse_exchange(exchange, need.code)
                return False
        return True


def in_version(need: Need, version: int) -> bool:
    match need.when:
        case When.OF_CLIENT:
            return version < OF_BROKERS_FROM
        case When.OF_BROKER:
            return version >= OF_BROKERS_FROM
        case _:
            return True


def reads_name(need: Need) -> bool:
    """True if a field of the request says what the need is about, or whether it applies."""
    on_cluster = all(right.resource_type is ResourceType.CLUSTER for right in need.any_of)
    return need.when in (When.TRANSACTIONAL_ID, When.NO_TRANSACTIONAL_ID) or not on_cluster


def name_in(exchange: Exchange, need: Need) -> str | None:
    """What the need is about. None if the field is null. Raises WireError."""
    flexible = exchange.version >= exchange.api.key.flexible_from
    read = exchange.api.names.get(need.any_of[0].resource_type, text_field)
    return read(exchange.request.body, flexible=flexible)


def whole_needs(api: Api) -> tuple[Need, ...]:
    """The needs that fail a whole request, except those that the handler asks."""
    return tuple(
        need
        for need in needs_of(api.key, Side.FRONT_DOOR)
        if need.denial is Denial.FAILS_REQUEST and need.when in APPLIES and need not in api.asks
    )


def asked_needs(api: Api) -> tuple[Need, ...]:
    """All needs that are asked at the front door for this API."""
    needs = needs_of(api.key, Side.FRONT_DOOR)
    split = tuple(need for need in needs if isinstance(api.dispatch, ToSlots | ToOwners))
    absent = tuple(
        need
        for need in needs
        if need.when is When.TWO_PHASE_COMMIT and api.versions[1] < TWO_PHASE_COMMIT_FROM
    )
    return (*whole_needs(api), *api.asks, *split, *absent)


def need_of_each(key: ApiKey) -> Need:
    """What an API that names groups or topics asks for each of them, or for the whole request."""
    (need,) = needs_of(key, Side.FRONT_DOOR)
    return need


def check_apis(served: Mapping[int, Api]) -> None:
    """Raises NotEnforced if an API has no row, or a need of the front door that nobody asks."""
    asked = {key: asked_needs(api) for key, api in served.items() if key in ROWS}
    check_enforced(served, asked, Side.FRONT_DOOR)
