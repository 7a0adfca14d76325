"""The record of a transactional id in etcd, and how an id is restored from it. Pure.

The law: an answer never promises more than the state that was persisted with it. Confirmed ends may be in memory alone
for a while: the next coordinator sends these ends again, and they change nothing. Parked requests are not persisted.
"""

from __future__ import annotations

from kafscale.coordinator.transactions.model import Instant, Rules, Transactions
from kafscale.storage.transactions import TransactionState, encode_transaction


def must_save(before: Transactions, after: Transactions) -> bool:
    return before.state != after.state


def encoded(transactions: Transactions) -> bytes | None:
    """The value of the key; None: there is nothing to persist, and the key is deleted."""
    return None if transactions.state is None else encode_transaction(transactions.state)


def restored(
    name: str, coordinator_epoch: int, state: TransactionState | None, now: Instant, rules: Rules
) -> Transactions:
    """The id as etcd has it. A transaction under way keeps its timeout, whoever coordinates it. Nobody knows how old
    the requests are that its beginning overtook, so it counts as begun now."""
    if state is None:
        return Transactions(id=name, coordinator_epoch=coordinator_epoch)
    began_ms = timeout_ms = expiration_ms = None
    if state.current is not None:
        began_ms = now.mono_ms
        timeout_ms = _due_ms(state.started_ms + state.timeout_ms, now)
    elif state.closing is None:
        expiration_ms = _due_ms(state.changed_ms + rules.expiration_ms, now)
    return Transactions(
        id=name,
        coordinator_epoch=coordinator_epoch,
        state=state,
        began_ms=began_ms,
        timeout_ms=timeout_ms,
        expiration_ms=expiration_ms,
    )


def _due_ms(wall_ms: int, now: Instant) -> int:
    """The monotonic time of a wall time. Due at once if it has passed."""
    return now.mono_ms + max(0, wall_ms - now.wall_ms)
