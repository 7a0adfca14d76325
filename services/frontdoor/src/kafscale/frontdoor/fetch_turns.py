"""One Fetch of a connection at a time: the next is sent on when the answer of the one before has been taken.

Kafka does so with every request, by not reading the socket. The front door does so with requests whose answers may be
large (connection.py); the others go on.
Law: of one connection there is at most one Fetch answer in memory, whatever the client requests and however little
it reads. The memory decides how large an answer may be requested (memory.py).
"""

from typing import Final

from kafscale.frontdoor.exchange import Caller, Exchange, FetchTurn, StartFetch
from kafscale.frontdoor.memory import SMALL_ANSWER_BYTES, AnswerMemory

LARGE_ANSWER_EXPECTED_BYTES: Final = SMALL_ANSWER_BYTES // 2
"""After an answer of this size the next is expected to be large; before the first answer the size is unknown."""


class FetchTurns:
    def __init__(self, memory: AnswerMemory) -> None:
        self.memory = memory

    def begin(self, exchange: Exchange, wanted_bytes: int, start: StartFetch) -> None:
        """Starts it now or when it is its turn. `wanted_bytes`: the most that the client takes."""
        caller = exchange.caller
        turn = caller.fetch_turn
        if turn is None:
            turn = caller.fetch_turn = FetchTurn()
        if turn.running is not None or turn.waiting or not caller.unsent.has_passed(turn.answered_slot):
            exchange.wait()  # for its own client
            turn.waiting.append((exchange, wanted_bytes, start))
            return
        self._start(turn, exchange, wanted_bytes, start)

    def _start(self, turn: FetchTurn, exchange: Exchange, wanted_bytes: int, start: StartFetch) -> None:
        large_expected = turn.last_bytes is None or turn.last_bytes >= LARGE_ANSWER_EXPECTED_BYTES
        granted_bytes = self.memory.grant(exchange.caller.unsent, wanted_bytes, large_expected=large_expected)
        turn.running = exchange
        start(exchange, granted_bytes)

    def answered(self, exchange: Exchange, size: int) -> None:
        """The connection has the answer and will send it."""
        turn = exchange.caller.fetch_turn
        if turn is not None and turn.running is exchange:
            turn.running = None
            turn.answered_slot = exchange.request.slot
            turn.last_bytes = size
            self.memory.settle(exchange.caller.unsent)

    def taken(self, caller: Caller) -> None:
        """The connection has little left to send. Starts the next Fetch, if one waits."""
        turn = caller.fetch_turn
        if turn is None or not turn.waiting or turn.running is not None:
            return
        if caller.unsent.has_passed(turn.answered_slot):
            self._start(turn, *turn.waiting.popleft())

    def left(self, caller: Caller) -> None:
        caller.fetch_turn = None
