"""How old a request is that must take no effect once it is too old.

A front door gives such a request AGE_MS_MAX from its arrival as the age budget. What is left of the budget when the
request leaves travels with it, so the service knows when the request reached a front door, and needs no common clock.
The time on the network is not counted.
"""

from typing import Final

from kafscale.runtime.stream.inbound import InboundRequest

AGE_MS_MAX: Final = 5_000
"""Of a request that changes a group's offsets or a transaction, or says which partitions a member has. Kafka's
offsets.commit.timeout.ms."""


def age_ms(request: InboundRequest, now_ms: int) -> int:
    """The time since the request reached a front door. `now_ms`: on the monotonic clock of this process.

    Without a budget the request is as old as its arrival here."""
    budget_ms = request.meta.age_budget_ms or AGE_MS_MAX
    return now_ms - request.arrived_ms + max(0, AGE_MS_MAX - budget_ms)
