"""ListTransactions (66): v0-2.   v1 filter by duration (KIP-994) · v2 filter by a pattern of ids (KIP-1152)

Lists the transactional ids of this instance's slots. The front door joins the answers of all instances. Names of states
that Kafka does not know are returned and match nothing. A duration matches transactions that are not over and have run
for longer; Kafka's also matches every id that never had a transaction. A pattern is RE2 and matches the whole id:
INVALID_REGULAR_EXPRESSION. COORDINATOR_LOAD_IN_PROGRESS while a slot is being read: the list would lack its ids.
COORDINATOR_NOT_AVAILABLE while this instance's lease may have expired. An id whose record cannot be read has the state
Unknown and no producer id, and only a pattern can leave it out. INVALID_REQUEST for a list that would be larger than
KAFSCALE_ANSWER_BYTES_MAX.
"""

from __future__ import annotations

import re2  # type: ignore[import-untyped]
from kafscale.coordinator.consumer.subscriptions import compiled
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.transactions.model import Phase, phase_of
from kafscale.runtime.answer_room import TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering
from kafscale.storage.transactions import NO_PRODUCER_ID, TransactionState
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_transactions as api

ANY_DURATION = -1
UNKNOWN = "Unknown"
DEAD_NAMES = frozenset({"Dead", "PrepareEpochFence"})
"""States of Kafka that no id has here."""
LISTED_BYTES = 64
"""Of one id on the wire, without its name."""

Listed = api.ListTransactionsResponseTransactionState


@answering(api)
async def handler(
    context: CoordinatorContext, request: api.ListTransactionsRequest
) -> api.ListTransactionsResponse:
    if context.slots.is_loading:
        return api.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if not context.clock.is_fresh():
        return api.ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    pattern = None
    if request.transactional_id_pattern:
        pattern = compiled(request.transactional_id_pattern)
        if pattern is None:
            return api.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    known = {phase.value for phase in Phase}
    unknown = [each for each in dict.fromkeys(request.state_filters) if each not in known | DEAD_NAMES]
    found = [state for state in await context.ids.states() if _matches(context, request, state)]
    listed = [_listed(state) for state in found]
    if not (request.state_filters or request.producer_id_filters or request.duration_filter > ANY_DURATION):
        listed += map(_unreadable, context.ids.unreadable())
    listed = [each for each in listed if _named(pattern, each.transactional_id)]
    size = sum(LISTED_BYTES + len(each.transactional_id.encode()) for each in listed)
    if not AnswerRoom(context.settings.answer_bytes_max).take(size):
        return api.ListTransactionsResponse(error_code=TOO_LARGE)
    return api.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _matches(
    context: CoordinatorContext, request: api.ListTransactionsRequest, state: TransactionState
) -> bool:
    if request.producer_id_filters and state.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and phase_of(state).value not in request.state_filters:
        return False
    if request.duration_filter <= ANY_DURATION:
        return True
    if state.current is None and state.closing is None:
        return False
    return context.clock.wall_ms() - state.started_ms > request.duration_filter


def _named(pattern: re2._Regexp | None, name: str) -> bool:
    return pattern is None or pattern.fullmatch(name) is not None


def _listed(state: TransactionState) -> Listed:
    return Listed(
        transactional_id=state.id,
        producer_id=state.producer_id,
        transaction_state=phase_of(state).value,
    )


def _unreadable(name: str) -> Listed:
    return Listed(transactional_id=name, producer_id=NO_PRODUCER_ID, transaction_state=UNKNOWN)
