"""How many connections there may be, in all and of one address: max.connections and max.connections.per.ip. Pure.

Law: a connection that has not sent a whole request keeps its place until another connection needs it. When no place is
left, the oldest such connection is closed, of the same address if the address is full. A new connection is refused only
if all others have sent a request.

On listeners with TLS or SASL the clients of some connections are not known yet (`UnauthenticatedConnections`). Law:
these connections cannot stall clients, because the bytes of their unfinished logins do not count in the memory for
requests. There are at most `UNAUTHENTICATED_MAX` of them. A further one takes the place of the oldest, of the same
address if that address has its share of the places. So silent connections do not keep out those that log in at once.
"""

from collections.abc import Hashable, Mapping
from ipaddress import ip_address
from typing import Final, Generic, TypeVar

from kafscale.frontdoor.listeners.listeners import ListenersWrong, plain_address
from kafscale.frontdoor.memory import RequestMemory

C = TypeVar("C", bound=Hashable)

UNAUTHENTICATED_MAX: Final = 1_000
UNAUTHENTICATED_MEMORY_SHARE: Final = 1 / 16
"""Of the memory for requests, if any listener has logins."""
OVERRIDES: Final = "KAFSCALE_MAX_CONNECTIONS_PER_IP_OVERRIDES"


def read_overrides(text: str) -> dict[str, int]:
    """`address:count,…`, as `max.connections.per.ip.overrides`, but without host names. Raises ListenersWrong."""
    counts: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = part.rpartition(":")
        try:
            key = str(ip_address(plain_address(address.strip("[]"))))
            counts[key] = int(count)
        except ValueError:
            raise ListenersWrong(f"{OVERRIDES}: {part!r} is not address:count, with an IP address") from None
        if counts[key] < 0:
            raise ListenersWrong(f"{OVERRIDES}: {part!r} has a count below 0")
    return counts


class ConnectionLimits(Generic[C]):
    def __init__(
        self, connections_max: int, address_max: int, overrides: Mapping[str, int] | None = None
    ) -> None:
        """`overrides`: other bounds for some addresses."""
        self._connections_max = connections_max
        self._address_max = address_max
        self._overrides = overrides or {}
        self._addresses: dict[C, str] = {}
        self._counts: dict[str, int] = {}
        self._newcomers: dict[str, dict[C, None]] = {}
        self._order: dict[C, None] = {}  # newcomers of all addresses, oldest first

    def __len__(self) -> int:
        return len(self._addresses)

    def enter(self, connection: C, address: str) -> tuple[bool, C | None]:
        """Whether it has a place, and the connection that lost its place for it, which must be closed."""
        displaced: C | None = None
        if self._counts.get(address, 0) >= self._overrides.get(address, self._address_max):
            displaced = next(iter(self._newcomers.get(address, ())), None)
        elif len(self._addresses) >= self._connections_max:
            displaced = next(iter(self._order), None)
        else:
            self._add(connection, address)
            return True, None
        if displaced is None:
            return False, None
        self.leave(displaced)
        self._add(connection, address)
        return True, displaced

    def settled(self, connection: C) -> None:
        """It has sent a whole request."""
        if connection in self._order:
            del self._order[connection]
            address = self._addresses[connection]
            newcomers = self._newcomers[address]
            del newcomers[connection]
            if not newcomers:
                del self._newcomers[address]

    def leave(self, connection: C) -> None:
        """Does nothing if the connection has left already."""
        if connection not in self._addresses:
            return
        self.settled(connection)
        address = self._addresses.pop(connection)
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def _add(self, connection: C, address: str) -> None:
        self._addresses[connection] = address
        self._counts[address] = self._counts.get(address, 0) + 1
        self._order[connection] = None
        self._newcomers.setdefault(address, {})[connection] = None


class UnauthenticatedConnections(Generic[C]):
    """A connection is one of them until it has logged in, or without SASL until it has sent a whole request."""

    def __init__(
        self, memory_bytes: int, *, address_share: float, connections_max: int = UNAUTHENTICATED_MAX
    ) -> None:
        """`address_share`: of the places and of the memory for large frames, that one address may have."""
        self.memory = RequestMemory(memory_bytes, address_share=address_share)
        address_max = max(1, int(connections_max * address_share))
        self._places: ConnectionLimits[C] = ConnectionLimits(connections_max, address_max)

    def __len__(self) -> int:
        return len(self._places)

    def enter(self, connection: C, address: str) -> C | None:
        """The connection that lost its place, which must be closed."""
        entered, displaced = self._places.enter(connection, address)
        assert entered, "each of them can be displaced"
        return displaced

    def leave(self, connection: C) -> None:
        """The connection has logged in or ended. Does nothing if it has left already."""
        self._places.leave(connection)
