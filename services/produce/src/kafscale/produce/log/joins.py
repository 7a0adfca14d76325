"""Which producers may append to their transactions in this partition, for one writer. Pure.

A transactional batch is appended only if the coordinator of its id confirmed the partition to this writer (a *join*),
or if the head had the transaction open when this writer claimed it. Otherwise a batch could come after the end of its
transaction, and no marker would ever end it. An end takes the joins back, also one whose answer is still on its way:
the answer may have been given before the end was decided (docs/protocol/transactions.md).
"""

from __future__ import annotations

from typing import NamedTuple

from kafscale.log.transactions import Transactions

OPEN_MAX = 1_000
"""Transactions that are open in one partition: each commit writes the head with all of them, 25 bytes each."""
_NOTHING_ENDED = 0
"""Numbers of transactions begin at 1."""


class Joined(NamedTuple):
    epoch: int
    number: int


class Joins:
    """`transactions` are those that are open up to the last assigned offset."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._joined: dict[int, Joined] = {}  # by producer id
        self._asked: dict[int, int] = {}  # a question is out → the highest number that ended since

    def number_of(self, producer_id: int, epoch: int) -> int | None:
        """The transaction that takes the next batch of this producer epoch; None: it has not joined one."""
        begun = self._transactions.of(producer_id)
        if begun is not None:
            return begun.number if begun.epoch == epoch else None
        joined = self._joined.get(producer_id)
        return joined.number if joined is not None and joined.epoch == epoch else None

    def asked(self, producer_id: int) -> None:
        """The coordinator is asked about a batch of this producer. One question at a time: answer it by `answered` or
        `unanswered`."""
        assert producer_id not in self._asked, "one question at a time"
        self._asked[producer_id] = _NOTHING_ENDED

    def answered(self, producer_id: int, epoch: int, number: int) -> bool:
        """The coordinator says that the producer takes part here in its transaction `number`. False: that transaction
        has ended meanwhile, or another one is still open here; the client sends its batches again."""
        ended = self._asked.pop(producer_id)
        begun = self._transactions.of(producer_id)
        if number <= ended or (begun is not None and (begun.number, begun.epoch) != (number, epoch)):
            return False
        self._joined.pop(producer_id, None)
        self._joined[producer_id] = Joined(epoch, number)
        if len(self._joined) > OPEN_MAX:
            del self._joined[next(iter(self._joined))]  # its next batch asks again
        return True

    def unanswered(self, producer_id: int) -> None:
        """The coordinator refused, or did not answer."""
        del self._asked[producer_id]

    def ended(self, producer_id: int, number: int) -> None:
        """All transactions of this producer up to `number` are decided."""
        joined = self._joined.get(producer_id)
        if joined is not None and joined.number <= number:
            del self._joined[producer_id]
        if producer_id in self._asked:
            self._asked[producer_id] = max(self._asked[producer_id], number)
