"""How fast connections may begin: max.connection.creation.rate, and connection_creation_rate of an address. Pure.

Laws: beyond the rate of the process or of a listener, a connection begins later, in the order of arrival, as behind the
acceptor of Kafka, which waits before it accepts the next one. Beyond the rate of its address a connection is held for
its throttle time and then closed, and it does not count. A connection that would have to wait longer than WAIT_MS_MAX
is closed at once: its client would give up before. Source: ConnectionQuotas (KIP-612).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.access.quota import QuotaTable
from kafscale.access.quota_rates import Meters, Window, WindowedRate, admit_connection
from kafscale.frontdoor.listeners.listener_security import values_by_listener
from kafscale.frontdoor.listeners.listeners import ListenersWrong

SETTING: Final = "KAFSCALE_MAX_CONNECTION_CREATION_RATE"
WAIT_MS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`wait_ms`: before the connection begins, or is closed."""

    wait_ms: int
    closes: bool


AT_ONCE: Final = Verdict(wait_ms=0, closes=False)


def read_rates(text: str, names: Iterable[str]) -> dict[str | None, int]:
    """`100,EXTERNAL=20`: connections per second of the process, under None, and of listeners. Raises ListenersWrong."""
    rates: dict[str | None, int] = {}
    for name, value in values_by_listener(SETTING, text, names).items():
        if not value.isdecimal() or not int(value):
            raise ListenersWrong(f"{SETTING}: {value!r} is not a number of connections per second from 1")
        rates[name] = int(value)
    return rates


class ConnectionRates:
    """The rates of connections to one process."""

    def __init__(self, rates: Mapping[str | None, int], table: QuotaTable, window: Window) -> None:
        """`rates`: those of `read_rates`. `table` has those of addresses."""
        self._limits = rates
        self._rates = {name: WindowedRate(window) for name in rates}
        self._free_ms: dict[str, int] = {}
        self._table = table
        self._addresses: Meters[str, WindowedRate] = Meters(WindowedRate, window)
        self._window = window

    @property
    def limits(self) -> bool:
        """Whether there is any limit now."""
        return bool(self._limits) or self._table.limits_ips

    def arrived(self, listener: str, address: str, now_ms: int) -> Verdict:
        """A connection has arrived. `address`: as `str` of it."""
        wait_ms = self._wait_ms(listener, now_ms)
        if wait_ms > WAIT_MS_MAX:
            return Verdict(wait_ms=0, closes=True)
        limit = self._table.connection_rate(address)
        if limit is not None:
            rate = self._addresses.of(address, now_ms)
            held_ms = admit_connection(rate, limit, self._window, now_ms)
            if held_ms:
                return Verdict(wait_ms=held_ms, closes=True)
        return Verdict(wait_ms=wait_ms, closes=False) if wait_ms else AT_ONCE

    def _wait_ms(self, listener: str, now_ms: int) -> int:
        """The connection is recorded when the acceptor of its listener is free, which then waits, a sample at most."""
        names = [name for name in (None, listener) if name in self._limits]
        if not names:
            return 0
        begin_ms = max(now_ms, self._free_ms.get(listener, 0))
        if begin_ms - now_ms > WAIT_MS_MAX:
            return begin_ms - now_ms
        waits_ms = []
        for name in names:
            rate = self._rates[name]
            rate.record(1, begin_ms)
            waits_ms.append(rate.throttle_ms(self._limits[name], begin_ms, at_most_ms=self._window.sample_ms))
        self._free_ms[listener] = begin_ms + max(waits_ms)
        return self._free_ms[listener] - now_ms
