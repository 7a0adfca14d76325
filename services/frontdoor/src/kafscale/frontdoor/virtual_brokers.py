"""Which broker this front door is to the clients of a listener.

Tools ask every broker that Metadata names and put the answers together, so each must answer for its own share
alone: what the same rules that Metadata and FindCoordinator follow give to it. Front doors that share an address
are one broker, whichever of them a client reaches.
"""

from dataclasses import dataclass

from kafscale.frontdoor.backends import Live
from kafscale.storage.brokers import Broker, brokers_on


@dataclass(frozen=True, slots=True)
class Cast:
    """The brokers as clients see them, and which of them we are; None while we are not registered, or leave."""

    brokers: tuple[Broker, ...]
    here: Broker | None


def cast_on(listener: str, front_doors: Live, node_id: int) -> Cast:
    """`node_id`: this front door's own."""
    instances = front_doors.instances()
    brokers = brokers_on(listener, instances)
    own = next(iter(brokers_on(listener, [each for each in instances if each.node_id == node_id])), None)
    if own is None:
        return Cast(brokers, None)
    address = (own.host, own.port)
    return Cast(brokers, next((each for each in brokers if (each.host, each.port) == address), None))
