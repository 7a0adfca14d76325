"""What the handlers of one front door work with; assembly.py builds it once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafscale.frontdoor.authorization import RequestAuthorizer
from kafscale.frontdoor.backends import Live
from kafscale.frontdoor.fetch_turns import FetchTurns
from kafscale.frontdoor.forwarding import Forwarder
from kafscale.frontdoor.group_calls import SlotCaller
from kafscale.frontdoor.owner_calls import OwnerCaller
from kafscale.frontdoor.produce_lanes import LaneSender
from kafscale.frontdoor.quotas.metering import Metering
from kafscale.frontdoor.routing import Routing
from kafscale.runtime.clock import Clock
from kafscale.storage.topics import TopicsView


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`advertised`: the versions that ApiVersions shows, by API key. `front_doors`: the brokers that clients see.
    `cluster_id`: the last known id, empty before the first start of an admin.
    `transaction_version`: the level of the feature `transaction.version` that clients see; None: transactions are off.
    `produce_timeout_min_ms`: the shortest timeout of a Produce with acks=all.
    """

    node_id: int
    clock: Clock
    topics: TopicsView
    front_doors: Live
    cluster_id: Callable[[], str]
    routing: Routing
    forwarder: Forwarder
    slots: SlotCaller
    owners: OwnerCaller
    sender: LaneSender
    turns: FetchTurns
    metering: Metering
    authorizer: RequestAuthorizer
    advertised: Mapping[int, tuple[int, int]]
    transaction_version: int | None
    produce_timeout_min_ms: int
