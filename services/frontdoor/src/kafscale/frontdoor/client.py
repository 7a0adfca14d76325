"""The socket of one client: the shell around the connection machine. Decides nothing about Kafka.

It reads only while the machine and the memory budget allow it, writes what the machine gives, and when the
client has gone it tells every exchange that is still open.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.connection import BadFrame, Connection, Event, FrameTooLarge, Request, Slot
from kafscale.frontdoor.exchange import Caller, Exchange
from kafscale.frontdoor.gateway import Gateway
from kafscale.frontdoor.handlers.produce import is_silent
from kafscale.wire.buffers import Buffer

WRITE_BUFFER_HIGH_BYTES: Final = 4 << 20
LINGER_MS_MAX: Final = 5_000
MID_FRAME_IDLE_MS_MAX: Final = 60_000
EOF_GRACE_MS: Final = 1_000


class ClientConnection(asyncio.BufferedProtocol):
    def __init__(self, gateway: Gateway, listener: str) -> None:
        self._gateway = gateway
        self._listener = listener
        self._machine = Connection(gateway.limits, scratch=gateway.scratch, silent=is_silent)
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._ending = False
        self._closing_ms: int | None = None
        self._eof_ms: int | None = None
        self._held_bytes = 0
        self._flush_asked = False
        self._paused_for = 0
        self._last_ms = gateway.clock.now_ms()
        self.exchanges: dict[Slot, Exchange] = {}
        self.caller = Caller(connection_id=0, listener=listener, peer="")

    # ---- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        number = self._gateway.enter(self)
        if number is None:
            self._gateway.complaints.log("too many connections", listener=self._listener)
            self._transport.abort()
            return
        self.caller.connection_id = number
        self.caller.peer = _peer_text(transport.get_extra_info("peername"))
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._machine.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        now_ms = self._last_ms = self._gateway.clock.now_ms()
        events = self._machine.buffer_updated(nbytes, now_ms)
        if events:
            self._handle(events)
        self._settle()

    def eof_received(self) -> bool:
        """The client sends no more. It may have left or only closed its half, which look the same from here:
        what it has asked is still answered if that is soon, and then given up."""
        self._ending = True
        self._eof_ms = self._gateway.clock.now_ms()
        self._settle()
        return not self._machine.drained

    def pause_writing(self) -> None:
        self._machine.writable(False)
        self._settle()

    def resume_writing(self) -> None:
        self._machine.writable(True)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._closing_ms is None:
            self._abandon()
        self._gateway.leave(self, self.caller)

    # ---- requests and answers

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if self._closing_ms is not None:
                return
            if isinstance(event, Request):
                self._gateway.dispatch(self, event)
            elif isinstance(event, FrameTooLarge):
                self._complain("frame too large", "frame_too_large", size=event.size, size_max=event.size_max)
            else:
                self._refuse_frame(event)

    def _refuse_frame(self, event: BadFrame) -> None:
        self._complain("not a Kafka request", "not_kafka", reason=event.reason)

    def answered(self, exchange: Exchange, body: Sequence[Buffer]) -> None:
        slot = exchange.request.slot
        del self.exchanges[slot]
        self._machine.respond(slot, body)
        self._gateway.count(exchange, sum(map(len, body)))
        self._ask_flush()

    def silenced(self, exchange: Exchange) -> None:
        slot = exchange.request.slot
        del self.exchanges[slot]
        self._machine.finish(slot)
        self._gateway.count(exchange, 0)
        self._ask_flush()

    def _ask_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            self._gateway.has_answers(self)

    def flush(self) -> None:
        """Sends what is ready and takes up what had to wait."""
        self._flush_asked = False
        if self._transport is None or self._closing_ms is not None:
            return
        buffers = self._machine.to_send()
        if buffers:
            self._transport.writelines(buffers)
        events = self._machine.resume(self._gateway.clock.now_ms())
        if events:
            self._handle(events)
        self._settle()

    # ---- reading or not

    def _settle(self) -> None:
        """After anything has changed: memory, whether to read, whether this is the end."""
        if self._closing_ms is not None or self._transport is None:
            return
        held_bytes = self._machine.held_bytes
        if held_bytes != self._held_bytes:
            delta_bytes, self._held_bytes = held_bytes - self._held_bytes, held_bytes
            self._gateway.account(delta_bytes)
        if self._ending:
            if self._machine.drained:
                self._close()
            return
        wanted = self._machine.reading and not self._paused_for
        if wanted and self._gateway.overloaded:
            self._gateway.stall(self)
            wanted = False
        if wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def has_room(self) -> None:
        self._settle()

    def pause_for(self, channel: Channel) -> None:
        self._paused_for += 1
        channel.when_drained(self._eased)

    def _eased(self) -> None:
        self._paused_for -= 1
        self._settle()

    # ---- the end

    def hang_up(self, reason: str) -> None:
        """The client cannot be answered: it is told so by the end of the connection."""
        self._complain("request without an answer", "bad_request", reason=reason)

    def _complain(self, kind: str, label: str, **fields: object) -> None:
        if self._closing_ms is not None:
            return
        self._gateway.metrics.hung_up.labels(label).inc()
        caller = self.caller
        who = {"connection_id": caller.connection_id, "peer": caller.peer, "listener": self._listener}
        self._gateway.complaints.log(kind, **who, **fields)
        self._close()

    def end_soon(self) -> None:
        """Drain: no more requests are read, the open ones are answered."""
        if self._transport is None or self._closing_ms is not None or self._ending:
            return
        self._ending = True
        if self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._settle()

    def _close(self) -> None:
        """Sends the answers that are ready, gives up the rest."""
        assert self._transport is not None
        self._closing_ms = self._gateway.clock.now_ms()
        buffers = self._machine.to_send()
        if buffers:
            self._transport.writelines(buffers)
        self._abandon()
        self._transport.close()

    def _abandon(self) -> None:
        self.caller.gone = True
        self._machine.closed()
        self._gateway.account(-self._held_bytes)
        self._held_bytes = 0
        exchanges, self.exchanges = self.exchanges, {}
        for exchange in exchanges.values():
            exchange.unanswered = False
            self._gateway.forget(exchange)
            call, exchange.call = exchange.call, None  # they hold each other, and with them this connection
            if call is not None:
                call.abandon()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def sweep(self, now_ms: int, idle_ms_max: int) -> None:
        if self._closing_ms is not None:
            if now_ms - self._closing_ms > LINGER_MS_MAX:
                self.abort()
            return
        if self._eof_ms is not None and now_ms - self._eof_ms > EOF_GRACE_MS:
            self._close()
            return
        for exchange in [e for e in self.exchanges.values() if e.deadline_ms <= now_ms]:
            self._expire(exchange)
        quiet_ms = now_ms - self._last_ms
        if self._machine.mid_frame and self._reading and quiet_ms > MID_FRAME_IDLE_MS_MAX:
            self._complain("half a request", "idle", quiet_ms=quiet_ms)
        elif quiet_ms > idle_ms_max and self._machine.drained:
            self._gateway.metrics.hung_up.labels("idle").inc()
            self._close()

    @staticmethod
    def _expire(exchange: Exchange) -> None:
        if not exchange.unanswered:
            return
        if exchange.call is None:
            exchange.hang_up("the request timed out")
        else:
            exchange.call.expire()


def _peer_text(peername: object) -> str:
    if isinstance(peername, tuple) and len(peername) >= 2:
        return f"{peername[0]}:{peername[1]}"
    return str(peername)
