"""Replies to requests, as the error contract wants them.

`acknowledge` is called for committed offsets only, and names the real offset. `fail` carries a code
that means "certainly not appended", or REQUEST_TIMED_OUT, the only answer to an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.produce.log.batches import Rejection
from kafscale.produce.log.flight import Waiter
from kafscale.produce.log.ledger import Sent
from kafscale.produce.log.model import Action, Reply, Token
from kafscale.produce.log.resolve import Outcome
from kafscale.wire.errors import ErrorCode


class Answers:
    def __init__(self, actions: list[Action], log_start: int) -> None:
        self._actions = actions
        self.log_start = log_start

    def acknowledge(self, waiters: Sequence[Waiter], revision: int) -> None:
        for waiter in waiters:
            self._actions.append(
                Reply(
                    token=waiter.token,
                    error=ErrorCode.NONE,
                    base_offset=waiter.base_offset,
                    log_append_time_ms=waiter.log_append_time_ms,
                    log_start_offset=self.log_start,
                    revision=revision,
                )
            )

    def fail(self, waiters: Sequence[Waiter], error: ErrorCode) -> None:
        for waiter in waiters:
            self._actions.append(Reply(token=waiter.token, error=error))

    def refuse(self, token: Token | None, why: Rejection) -> None:
        """Nothing of the request was appended."""
        if token is not None:
            self._actions.append(Reply(token=token, error=why.error, message=why.message, faults=why.faults))

    def decide(self, sent: Sent, outcome: Outcome, revision: int) -> None:
        """The transaction that ended the epoch: what its requests are told."""
        self.fail(sent.doubts.take_all(), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for flight in sent.flights:
            waiters = flight.waiters.take_all()
            if outcome is Outcome.COMMITTED:
                self.acknowledge(waiters, revision)
            elif outcome is Outcome.ABSENT:
                self.fail(waiters, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                self.fail(waiters, ErrorCode.REQUEST_TIMED_OUT)

    def reject(self, sent: Sent, error: ErrorCode) -> None:
        """The transaction was never proposed."""
        for waiters in (sent.doubts, *(flight.waiters for flight in sent.flights)):
            self.fail(waiters.take_all(), error)
