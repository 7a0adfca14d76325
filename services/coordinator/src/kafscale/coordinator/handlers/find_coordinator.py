"""FindCoordinator (10): v0-6.   v1 key types · v4 several keys (KIP-699) · v6 share groups

Returns a front door of the client's listener, by rendezvous hashing over the key, so every client gets the same one.
The key types are groups (0) and transactions (1); another type is INVALID_REQUEST. COORDINATOR_NOT_AVAILABLE while no
front door is registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from kafscale.coordinator.context import CoordinatorContext
from kafscale.runtime.stream.apis import answering_with_meta
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.brokers import brokers_on, coordinator_of
from kafscale.storage.membership.members import Instance
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import find_coordinator as api

BATCHED_FROM = 4
NO_BROKER = -1
SUCCESS = "NONE"
"""The text of a success before the batches, in Kafka's words. Clients that cannot read a null get none."""


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


@answering_with_meta(api)
async def handler(
    context: CoordinatorContext, request: api.FindCoordinatorRequest, meta: RequestMeta
) -> api.FindCoordinatorResponse:
    if not context.front_doors.instances():
        await context.front_doors.refresh()
    return find(request, meta.api_version, meta.listener, context.front_doors.instances())


def find(
    request: api.FindCoordinatorRequest, version: int, listener: str | None, front_doors: Sequence[Instance]
) -> api.FindCoordinatorResponse:
    """The answer in the shape of the version: one coordinator at the top, or a list."""
    if version >= BATCHED_FROM:
        keys = dict.fromkeys(request.coordinator_keys)
        found = [_one(key, request.key_type, listener, front_doors) for key in keys]
        return api.FindCoordinatorResponse(coordinators=found)
    one = _one(request.key, request.key_type, listener, front_doors)
    return api.FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or SUCCESS,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _one(
    key: str, key_type: int, listener: str | None, front_doors: Sequence[Instance]
) -> api.FindCoordinatorResponseCoordinator:
    if key_type not in (KeyType.GROUP, KeyType.TRANSACTION):
        return _refusal(key, ErrorCode.INVALID_REQUEST, f"Coordinators of type {key_type} are not supported.")
    brokers = brokers_on(listener, front_doors)
    if not brokers:
        return _refusal(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "No front door is registered yet.")
    chosen = coordinator_of(key, brokers)
    return api.FindCoordinatorResponseCoordinator(
        key=key, node_id=chosen.node_id, host=chosen.host, port=chosen.port
    )


def _refusal(key: str, error: ErrorCode, message: str) -> api.FindCoordinatorResponseCoordinator:
    return api.FindCoordinatorResponseCoordinator(
        key=key, node_id=NO_BROKER, host="", port=NO_BROKER, error_code=error, error_message=message
    )
