"""What became of a transaction that etcd answered with "the head is another".

An unknown outcome stays unknown until it is re-asked: the shell sends the identical transaction
again, and when that one is refused, the head that refused it tells whether an earlier send had been
applied. Evidence, in this order: the commit's attempt id; the epoch history, by which an offset
inside my epoch was committed by me and nobody else. Pure.
"""

from __future__ import annotations

from enum import Enum, auto

from kafscale.storage.heads import EPOCHS_MAX, Head


class Outcome(Enum):
    COMMITTED = auto()
    ABSENT = auto()  # definitely not committed, and no late copy can be
    UNKNOWABLE = auto()  # the evidence is gone; the requests must not be told a failure


def judge_commit(sent: Head, base: int, current: Head | None, *, ambiguous: bool) -> Outcome:
    """`sent` would have committed [base, sent.next); `current` is the head that refused it."""
    if current is not None and current.attempt == sent.attempt:
        return Outcome.COMMITTED
    if not ambiguous:
        return Outcome.ABSENT
    if current is None:
        return Outcome.UNKNOWABLE
    if current.next <= base:
        return Outcome.ABSENT
    return _by_history(sent.epoch, base, sent.next, current)


def _by_history(epoch: int, base: int, end: int, current: Head) -> Outcome:
    for position, start in enumerate(current.epochs):
        if start.epoch != epoch:
            continue
        later = current.epochs[position + 1 :]
        epoch_end = later[0].start if later else current.next
        return Outcome.COMMITTED if start.start <= base and end <= epoch_end else Outcome.ABSENT
    pruned = len(current.epochs) == EPOCHS_MAX and current.epochs[0].epoch > epoch
    if not pruned:
        return Outcome.ABSENT  # a history without my epoch: it committed nothing
    for seg in current.tail:
        if seg.base <= base < seg.end:
            return Outcome.COMMITTED if seg.epoch == epoch else Outcome.ABSENT
    return Outcome.UNKNOWABLE


def judge_checkpoint(sent: Head, sent_over: int, current: Head | None, revision: int) -> Outcome:
    """COMMITTED: it is the head now. ABSENT: the head is untouched, so meta moved. UNKNOWABLE: fenced."""
    if revision == sent_over:
        return Outcome.ABSENT
    return Outcome.COMMITTED if current == sent else Outcome.UNKNOWABLE
