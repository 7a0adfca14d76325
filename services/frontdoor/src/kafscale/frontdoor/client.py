"""The socket of one client: the shell around the connection machine. Decides nothing about Kafka.

It reads only while the machine and the memory budget allow it, and writes what the machine returns. When the client
has left, it abandons every exchange that is still open.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from kafscale.access.principals import ANONYMOUS, Principal
from kafscale.frontdoor.authentication.login import ListenerLogins, Login
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.connection import Connection, Event, FrameTimer, FrameTooLarge, Framing, Request, Slot
from kafscale.frontdoor.exchange import Caller, Exchange
from kafscale.frontdoor.gateway import Gateway
from kafscale.frontdoor.handlers.produce import is_silent
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity
from kafscale.frontdoor.listeners.listeners import address_of, peer_text
from kafscale.frontdoor.memory import SMALL_ANSWER_BYTES, Holder, UnsentAnswers, nobody
from kafscale.frontdoor.quotas.metering import Mute
from kafscale.wire.buffers import Buffer

LINGER_MS_MAX: Final = 5_000
EOF_GRACE_MS: Final = 1_000


class ClientConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        gateway: Gateway,
        security: ListenerSecurity,
        peername: tuple[str, int] | None = None,
        logins: ListenerLogins | None = None,
    ) -> None:
        """`peername`: the client's address and port, if a proxy named them. `logins`: None if the listener's clients
        need no login."""
        self._gateway = gateway
        self._security = security
        self._peername = peername
        self._established = False
        self._machine = Connection(
            gateway.limits,
            scratch=gateway.scratch,
            silent=is_silent,
            alone=gateway.alone if logins is None else gateway.alone_with_logins,
        )
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._ending = self._flush_asked = False
        self._closing_ms: int | None = None
        self._eof_ms: int | None = None
        self._paused_for = 0
        self._mute: Mute | None = None
        now_ms = self._made_ms = self._last_ms = gateway.clock.now_ms()
        self._login = None if logins is None else Login(logins, now_ms)
        if self._login is not None:
            self._login.reframe(self)
        self._memory = gateway.requests if logins is None else gateway.unauthenticated.memory
        self._has_asked = False
        self._frame_timer = FrameTimer()
        self._holder = Holder(address="", wake=self._settle, end=self._make_room, touched_ms=now_ms)
        self.exchanges: dict[Slot, Exchange] = {}
        unsent = UnsentAnswers(end=self._make_room, moved_ms=now_ms)
        self.caller = Caller(connection_id=0, listener=security.name, peer="", unsent=unsent)

    # ---- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peername = self._peername or transport.get_extra_info("peername")
        unauthenticated = self._security.tls is not None or self._login is not None
        self._holder.address = address_of(peername)
        number = self._gateway.enter(self, self._holder.address, unauthenticated=unauthenticated)
        if number is None:
            self._closing_ms = self._last_ms
            self._transport.abort()
            return
        self.caller.connection_id = number
        self.caller.peer = peer_text(peername)
        self._transport.set_write_buffer_limits(high=SMALL_ANSWER_BYTES)
        if self._security.tls is None:
            self.established(ANONYMOUS)

    def established(self, principal: Principal) -> None:
        """The TLS handshake is done, or there is none. Before that, no byte comes here. With logins the principal is
        that of the login alone, as in Kafka."""
        self._established = True
        if self._login is None:
            self.caller.principal = principal

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._machine.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        now_ms = self._last_ms = self._holder.touched_ms = self._gateway.clock.now_ms()
        events = self._machine.buffer_updated(nbytes, now_ms)
        self._note_frame(now_ms, new_frame=bool(events))
        self._handle(events)
        self._settle()

    def _note_frame(self, now_ms: int, *, new_frame: bool) -> None:
        """Bytes of the current frame have arrived, or of a new one, whose turn and time then begin."""
        self._frame_timer.arrived(now_ms, new_frame=new_frame, under_way=self._machine.mid_frame)
        if new_frame:
            self._memory.next_frame(self._holder)

    def eof_received(self) -> bool:
        """The client sends no more. It may have left or only closed its half; the two look the same here.
        Its open requests are answered for a short time and then given up."""
        self._ending = True
        self._eof_ms = self._gateway.clock.now_ms()
        self._unmute()
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
        if self._login is not None:
            self._login.close()
        self._gateway.leave(self, self.caller)
        self._gateway.let_go(self._memory, self._holder, self.caller.unsent)
        # Breaks the reference cycle, so that the connection is freed at once.
        self._holder.wake = self._holder.end = self.caller.unsent.end = nobody

    # ---- requests and answers

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if self._closing_ms is not None:
                return
            if isinstance(event, Request):
                if self._login is not None and not self._login.passes(self, event):
                    continue
                if not self._has_asked:
                    self._has_asked = True
                    self._gateway.has_asked(self)
                self._gateway.dispatch(self, event)
            elif isinstance(event, FrameTooLarge):
                self.close("frame too large", "frame_too_large", size=event.size, size_max=event.size_max)
            else:
                self.close("not a Kafka request", "not_kafka", reason=event.reason)

    def answered(self, exchange: Exchange, body: Sequence[Buffer]) -> None:
        if exchange.usage is not None:
            body = self._gateway.metering.answered(exchange, body)
        self._machine.respond(exchange.request.slot, body)
        self._over(exchange, sum(map(len, body)))

    def answered_part(self, exchange: Exchange, part: memoryview, *, size: int, left_bytes: int) -> None:
        self._machine.respond_part(exchange.request.slot, [part], size=size, last=not left_bytes)
        self._gateway.arriving(exchange, left_bytes)
        if left_bytes:
            self._ask_flush()
        else:
            self._over(exchange, size)

    def silenced(self, exchange: Exchange) -> None:
        self._machine.finish(exchange.request.slot)
        self._over(exchange, 0)

    def _over(self, exchange: Exchange, out_bytes: int) -> None:
        del self.exchanges[exchange.request.slot]
        self._gateway.count(exchange, out_bytes)
        self._ask_flush()

    def _ask_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            self._gateway.has_answers(self)

    def flush(self) -> None:
        """Sends the answers that are ready, and resumes requests that had to wait."""
        self._flush_asked = False
        if self._transport is None or self._closing_ms is not None:
            return
        self._write(self._transport)
        self._gateway.start_ready(self.caller)
        now_ms, was_mid_frame = self._gateway.clock.now_ms(), self._machine.mid_frame
        events = self._machine.resume(now_ms)
        if events or self._machine.mid_frame is not was_mid_frame:
            self._note_frame(now_ms, new_frame=True)
            self._handle(events)
        self._settle()

    def _write(self, transport: asyncio.Transport) -> None:
        unsent_bytes = self._machine.unsent_bytes
        buffers = self._machine.to_send()
        if buffers:
            self.caller.unsent.given_bytes += unsent_bytes - self._machine.unsent_bytes
            transport.writelines(buffers)

    # ---- reading or not

    def _settle(self) -> None:
        """Call it after any change: accounts for memory, decides whether to read, and ends a connection that is
        done."""
        if self._closing_ms is not None or self._transport is None:
            return
        self._account(self._transport)
        if self._ended:
            return
        if self._ending:
            self._gateway.next_fetch(self.caller)
            if self._machine.drained:
                self._end()
            return
        wanted = self._machine.reading and not self._paused_for
        if wanted and not self._memory.admits(self._holder):
            if self._reading:
                self._gateway.metrics.stalls.inc()
            wanted = False
        if wanted != self._reading:
            self._reading = wanted
            self._frame_timer.reading(wanted, self._gateway.clock.now_ms())
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        if not self._machine.muted:
            self._gateway.next_fetch(self.caller)

    @property
    def _ended(self) -> bool:
        return self._closing_ms is not None or self._transport is None

    def _account(self, transport: asyncio.Transport) -> None:
        """Reports what this connection holds. This may close this connection, or others."""
        machine, holder, unsent = self._machine, self._holder, self.caller.unsent
        unsent.next_slot = machine.next_slot
        if machine.held_bytes != holder.held_bytes or machine.mid_frame is not holder.under_way:
            self._gateway.hold(self._memory, holder, machine.held_bytes, under_way=machine.mid_frame)
        unsent_bytes, buffered_bytes = machine.unsent_bytes, transport.get_write_buffer_size()
        if unsent_bytes or buffered_bytes or unsent.waiting_bytes:
            self._gateway.owe(self.caller, unsent_bytes=unsent_bytes, buffered_bytes=buffered_bytes)

    def _make_room(self) -> None:
        self.cut_off("its memory was needed", "memory")

    def admits(self, exchange: Exchange, size: int) -> bool:
        return self._gateway.admits(exchange, size)

    def pause_for(self, channel: Channel) -> None:
        self._paused_for += 1
        channel.when_drained(self._eased)

    def _eased(self) -> None:
        self._paused_for -= 1
        self._settle()

    def mute(self, until_ms: int) -> None:
        """A connection that ends is not muted: its client sends no more. `_settle` follows."""
        if self._ended or self._ending:
            return
        self._mute = self._mute or Mute(self._unmute)
        self._mute.extend(until_ms, self._gateway.clock.now_ms())
        self._machine.mute(True)

    def _unmute(self) -> None:
        if self._mute is not None:
            self._mute.cancel()
            self._mute = None  # it leads back here
            self._machine.mute(False)
            self._last_ms = self._gateway.clock.now_ms()
            self.flush()

    # ---- the login

    @property
    def host(self) -> str:
        return self._holder.address

    def begin(self, request: Request) -> Exchange:
        return self._gateway.begin(self, request)

    def reframe(self, framing: Framing, frame_bytes_max: int | None) -> None:
        self._machine.reframe(framing, frame_bytes_max or self._gateway.limits.frame_bytes_max)

    def logged_in(self, principal: Principal, ends_ms: int | None) -> None:
        """From now on the connection counts as established. `ends_ms`: when its session ends; None: never."""
        self.caller.principal = principal
        self.caller.session_ends_ms = ends_ms
        if not self._has_asked:
            self._has_asked = True
            self._memory = self._gateway.logged_in(self, self._holder)

    # ---- the end

    def close(self, kind: str, label: str, *, flush: bool = True, **fields: object) -> None:
        """Counts and logs why, and closes. `kind` is for the log, `label` for the metric. `flush`: the answers that are
        ready are sent before."""
        if self._closing_ms is not None:
            return
        self._gateway.metrics.hung_up.labels(label).inc()
        who = {"connection_id": self.caller.connection_id, "peer": self.caller.peer}
        self._gateway.warnings.log(kind, **who, listener=self._security.name, **fields)
        self._end(flush=flush)

    def cut_off(self, kind: str, label: str) -> None:
        """Closes without sending anything more, so its memory is free at once."""
        self.close(kind, label, flush=False)
        self.abort()

    def drain(self) -> None:
        """Reads no more requests, answers the open ones, and closes."""
        if self._transport is None or self._closing_ms is not None or self._ending:
            return
        self._ending = True
        if self._reading:
            self._reading = False
            self._transport.pause_reading()
        self._unmute()
        self._settle()

    def _end(self, *, flush: bool = True) -> None:
        """Gives up the open requests. The transport still sends what it has."""
        assert self._transport is not None
        self._closing_ms = self._gateway.clock.now_ms()
        if flush:
            self._write(self._transport)
        self._abandon()
        self._transport.close()

    def _abandon(self) -> None:
        self.caller.gone = True
        self._machine.closed()
        self._unmute()
        self._gateway.let_go(self._memory, self._holder, self.caller.unsent)
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

    def sweep(self, now_ms: int) -> None:
        if self._closing_ms is not None:
            if now_ms - self._closing_ms > LINGER_MS_MAX:
                self.abort()
            return
        if self._eof_ms is not None and self.caller.held is not None:
            self._eof_ms = now_ms  # what is held has its time when it starts
        if self._eof_ms is not None and now_ms - self._eof_ms > EOF_GRACE_MS:
            self._end()
            return
        for exchange in [e for e in self.exchanges.values() if e.deadline_ms <= now_ms]:
            exchange.expire()
        if self.caller.unsent.waiting_bytes:
            self._settle()
        if not self._ended:
            self._sweep_time(now_ms)

    def _is_late(self, now_ms: int) -> bool:
        """The time for the TLS handshake, and for the login with it, is over."""
        if self._login is not None:
            return self._login.is_late(now_ms)
        limit_ms = self._gateway.settings.authentication_timeout_ms
        return not self._established and now_ms - self._made_ms > limit_ms

    def _sweep_time(self, now_ms: int) -> None:
        """Closes the connection if its client exceeds one of the limits of time."""
        machine, gateway, settings = self._machine, self._gateway, self._gateway.settings
        age_ms = now_ms - self._made_ms
        pressed = machine.mid_frame and self._memory.is_pressed(self._holder)
        wrong = self._frame_timer.wrong(
            gateway.frame_timeouts, now_ms, arrived_bytes=machine.arrived_bytes, pressed=pressed
        )
        if wrong is not None:
            self.close(wrong, "half_request")
        elif self.caller.unsent.is_stuck(now_ms):
            self.cut_off("a client that takes no answers", "no_reader")
        elif self._is_late(now_ms):
            self.close("not authenticated in time", "authentication_timeout")
        elif self._login is None and not self._has_asked and age_ms > settings.frontdoor_first_request_ms:
            self.close("no request", "no_request")
        elif now_ms - self._last_ms > settings.connections_max_idle_ms and machine.idle:
            gateway.metrics.hung_up.labels("idle").inc()
            self._end()
