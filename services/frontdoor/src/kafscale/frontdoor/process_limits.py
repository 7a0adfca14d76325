"""What this process asks of the system before it serves: descriptors."""

import resource
from typing import Final

import structlog

log = structlog.get_logger("kafscale.frontdoor")

OTHER_DESCRIPTORS: Final = 256


def allow_descriptors(connections_max: int) -> None:
    """A connection is a descriptor; the usual soft limit of 1024 would end accepting long before our bound."""
    wanted = connections_max + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning(
            "fewer connections than max.connections can be open",
            connections_max=connections_max,
            descriptors=allowed,
        )
