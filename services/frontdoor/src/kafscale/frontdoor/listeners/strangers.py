"""The connections on listeners with TLS or SASL whose client is not known yet. Pure.

A connection is one of them until it has logged in, or without SASL until it has sent a whole request.

Laws: strangers cannot stall clients, because the bytes of their unfinished logins do not count in the memory for
requests. There are at most `CONNECTIONS_MAX` of them. A further one takes the place of the oldest, of the same address
if that has its share of the places; so silent connections do not keep out those that log in at once.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from kafscale.frontdoor.listeners.connection_limits import ConnectionLimits
from kafscale.frontdoor.memory import RequestMemory

CONNECTIONS_MAX: Final = 1_000
MEMORY_SHARE: Final = 1 / 16
"""Of the memory for requests, if any listener has logins."""

C = TypeVar("C", bound=Hashable)


class Strangers(Generic[C]):
    def __init__(
        self, memory_bytes: int, *, address_share: float, connections_max: int = CONNECTIONS_MAX
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
        assert entered, "a stranger has no lasting place"
        return displaced

    def leave(self, connection: C) -> None:
        """It has logged in or ended; nothing if it has left already."""
        self._places.leave(connection)
