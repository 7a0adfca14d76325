"""How a process leaves: nobody is sent away while there is something to hand over, nor kept for ever."""

import asyncio
from typing import Final

import structlog
from kafscale.runtime.service import ServiceParts
from kafscale.runtime.stream.server import StreamServer
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.membership.members import InstanceState, Registration

log = structlog.get_logger("kafscale.process")

LEAVE_TIMEOUT_S: Final = 3.0


async def drain(
    parts: ServiceParts, streams: StreamServer, registration: Registration, timeout_ms: int
) -> None:
    """Publishes DRAINING, lets the service hand over, then refuses new requests and answers the open ones."""
    log.info("draining", open_requests=streams.open_requests, timeout_ms=timeout_ms)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            try:
                await registration.set_state(InstanceState.DRAINING)
            except EtcdError as error:
                log.warning("draining is not published", why=str(error))
            await parts.drain()
            streams.refuse_new()
            await streams.until_idle()
    except TimeoutError:
        streams.refuse_new()
        log.warning("drain did not end in time", open_requests=streams.open_requests, timeout_ms=timeout_ms)
    else:
        log.info("drained")
    streams.leave()


async def leave(registration: Registration) -> None:
    """A registration that cannot be taken back runs out with its lease."""
    try:
        async with asyncio.timeout(LEAVE_TIMEOUT_S):
            await registration.leave()
    except (EtcdError, TimeoutError) as error:
        log.warning("registration is left to expire", why=str(error))
