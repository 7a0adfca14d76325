"""The memory that answers take until their clients have taken them. Pure.

Laws: every answer counts, from its arrival here until the socket has taken it. The front door reserves room for a
large Fetch answer before it sends the request; without room it requests a small size, so that no client waits for
clients that do not read. For other answers that arrive in several parts of a stream (1 MiB each), it reserves room for
each part before it keeps it (`take`); without room it drops the answer, and the client retries. When answers fill the
memory, the connections that have taken nothing for longest are closed. A connection that takes nothing for `STUCK_MS`
while bytes wait in its socket is closed in any case.
"""

from collections.abc import Callable
from typing import Final

STUCK_MS: Final = 60_000
SMALL_ANSWER_BYTES: Final = 1 << 20
RESERVED_SHARE: Final = 0.75
LARGEST_SHARE: Final = 0.25
FRESH_MS: Final = 1_000
OVERRUN: Final = 1.25
"""Above this share, a connection is closed even if it has just taken something."""


def nobody() -> None:
    """In place of a callback, when the connection has ended."""


class UnsentAnswers:
    """One connection's answers. `moved_ms`: when its client last took something, or nothing waited."""

    __slots__ = (
        "buffered_bytes",
        "end",
        "given_bytes",
        "moved_ms",
        "next_slot",
        "reserved_bytes",
        "taken_bytes",
        "unsent_bytes",
    )

    def __init__(self, *, end: Callable[[], None] = nobody, now_ms: int = 0) -> None:
        """`end`: its memory is needed, the connection must close."""
        self.end = end
        self.moved_ms = now_ms
        self.next_slot = 0  # the first request whose answer the socket has not been given
        self.reserved_bytes = 0
        self.unsent_bytes = 0  # here, behind other answers or because the socket is full
        self.buffered_bytes = 0  # in the socket's own buffer
        self.given_bytes = 0  # to the socket, ever
        self.taken_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        return self.unsent_bytes + self.buffered_bytes

    def has_passed(self, slot: int) -> bool:
        """The answer of that request has left, but for what a socket takes soon. Answers behind it may wait: they do so
        for requests between, and one of those may wait for this."""
        return self.next_slot > slot and self.buffered_bytes <= SMALL_ANSWER_BYTES

    def is_stuck(self, now_ms: int) -> bool:
        return self.buffered_bytes > 0 and now_ms - self.moved_ms > STUCK_MS


class AnswerMemory:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.largest_bytes = max(SMALL_ANSWER_BYTES, int(bytes_max * LARGEST_SHARE))
        self._waiting: dict[UnsentAnswers, None] = {}

    def update(self, unsent: UnsentAnswers, *, unsent_bytes: int, buffered_bytes: int, now_ms: int) -> None:
        """What of the connection's answers waits now."""
        taken_bytes = unsent.given_bytes - buffered_bytes
        if taken_bytes > unsent.taken_bytes or not buffered_bytes:
            unsent.moved_ms = now_ms
        unsent.taken_bytes = taken_bytes
        self.used_bytes += unsent_bytes + buffered_bytes - unsent.waiting_bytes
        unsent.unsent_bytes, unsent.buffered_bytes = unsent_bytes, buffered_bytes
        if unsent.waiting_bytes:
            self._waiting[unsent] = None
        else:
            self._waiting.pop(unsent, None)

    def grant(self, unsent: UnsentAnswers, wanted_bytes: int, *, hungry: bool) -> int:
        """How large an answer may be asked for. `hungry`: a large one is to be expected."""
        wanted_bytes = min(wanted_bytes, self.largest_bytes)
        if wanted_bytes <= SMALL_ANSWER_BYTES:
            return wanted_bytes
        if not hungry or self.used_bytes + wanted_bytes > RESERVED_SHARE * self.bytes_max:
            return SMALL_ANSWER_BYTES
        unsent.reserved_bytes += wanted_bytes
        self.used_bytes += wanted_bytes
        return wanted_bytes

    def settle(self, unsent: UnsentAnswers) -> None:
        """The answer is here and counts by itself, or none will come."""
        self.used_bytes -= unsent.reserved_bytes
        unsent.reserved_bytes = 0

    def take(self, size: int) -> bool:
        """Whether there is room for so much more of an answer that is on its way; it counts until `give_back`."""
        if self.used_bytes + size > self.bytes_max:
            return False
        self.used_bytes += size
        return True

    def give_back(self, size: int) -> None:
        self.used_bytes -= size

    def leave(self, unsent: UnsentAnswers) -> None:
        self.settle(unsent)
        self.update(unsent, unsent_bytes=0, buffered_bytes=0, now_ms=unsent.moved_ms)

    def victims(self, now_ms: int, wanted_bytes: int = 0) -> list[UnsentAnswers]:
        """The connections to close because answers fill the memory, or leave less than is wanted; usually none."""
        excess_bytes = self.used_bytes + wanted_bytes - self.bytes_max
        if excess_bytes <= 0:
            return []
        chosen: list[UnsentAnswers] = []
        for one in sorted(self._waiting, key=_worst_first):
            if excess_bytes <= 0:
                break
            fresh = now_ms - one.moved_ms < FRESH_MS
            if fresh and self.used_bytes <= OVERRUN * self.bytes_max:
                continue
            excess_bytes -= one.waiting_bytes
            chosen.append(one)
        return chosen


def _worst_first(unsent: UnsentAnswers) -> tuple[int, int]:
    return unsent.moved_ms, -unsent.waiting_bytes
