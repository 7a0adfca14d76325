"""Who the producer of an id is: how its epochs rise, and which requests of an older epoch are repeats. Pure.

The laws: epochs never fall within a producer id. After LAST_EPOCH the id gets a new producer id, whose epochs begin at
0. A request of an older epoch counts as a repeat only if the client of that very epoch caused the present one, so a
producer that was fenced never learns the epoch of its successor.
"""

from __future__ import annotations

from dataclasses import replace

from kafscale.coordinator.transactions.model import LAST_EPOCH, ProducerEpoch
from kafscale.storage.transactions import NO_EPOCH, TransactionState


def producer_of(state: TransactionState) -> ProducerEpoch:
    return ProducerEpoch(state.producer_id, state.epoch)


def is_present(state: TransactionState, producer: ProducerEpoch) -> bool:
    """Whether the producer may change the state. No producer has an epoch above LAST_EPOCH."""
    return producer == producer_of(state) and producer.epoch <= LAST_EPOCH


def raised(state: TransactionState, *, last_epoch: int, fresh_id: int | None) -> TransactionState:
    """With the next epoch. `last_epoch`: the old one, if its client may repeat its request; else NO_EPOCH."""
    if state.epoch < LAST_EPOCH:
        return replace(state, epoch=state.epoch + 1, last_epoch=last_epoch)
    assert fresh_id is not None, "after the last epoch the request brings a producer id"
    return replace(state, producer_id=fresh_id, epoch=0, last_epoch=last_epoch, previous_id=state.producer_id)


def fenced(state: TransactionState, *, last_epoch: int) -> TransactionState:
    """With an epoch above that of its producer. It may be 32,767: then InitProducerId gives a new producer id."""
    return replace(state, epoch=state.epoch + 1, last_epoch=last_epoch)


def may_init(state: TransactionState, expected: ProducerEpoch) -> bool:
    """Whether a client that believes to be `expected` may go on. Kafka would also accept the last epoch of the
    previous producer id from a client that was fenced since; that client could abort its successor's transaction."""
    return expected == producer_of(state) or repeats_init(state, expected)


def repeats_init(state: TransactionState, expected: ProducerEpoch) -> bool:
    """The present epoch is the answer to an earlier request of this client: an InitProducerId, or an EndTxn."""
    if state.last_epoch == NO_EPOCH or expected.epoch != state.last_epoch:
        return False
    before = state.previous_id if state.epoch == 0 else state.producer_id
    return expected.producer_id == before


def repeats_end(state: TransactionState, producer: ProducerEpoch) -> bool:
    """TV2: the decision that this client asked for has raised its epoch; or a timeout has, which aborted."""
    if not state.last_bumped or state.epoch > LAST_EPOCH:
        return False
    if state.epoch == 0:
        return producer == ProducerEpoch(state.previous_id, LAST_EPOCH)
    return producer == ProducerEpoch(state.producer_id, state.epoch - 1)
