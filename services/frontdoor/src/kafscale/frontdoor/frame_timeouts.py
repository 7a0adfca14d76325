"""How long a frame may take to arrive. Pure.

Laws: a frame must be whole within a time that begins with its first byte, whether the front door reads it or not.
While the front door reads it, its bytes arrive at a minimum rate, on average and after a grace period. A frame never
pauses for long, and for less time while others wait for the memory that it holds. Time in which the front door does
not read does not count against the client.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTimeouts:
    frame_ms_max: int = 600_000
    quiet_ms_max: int = 60_000
    pressed_quiet_ms_max: int = 10_000
    grace_ms: int = 30_000
    bytes_per_s_min: int = 32 << 10


@dataclass(slots=True, eq=False)
class FrameTimer:
    """Of one connection: the frame that is under way, if there is one."""

    first_ms: int | None = None  # of the frame's first byte; None: no frame is under way
    _began_ms: int = 0  # the first byte, later by the time in which nothing was read
    _quiet_from_ms: int = 0
    _unread_from_ms: int | None = None

    def arrived(self, now_ms: int, *, new_frame: bool, under_way: bool) -> None:
        """Bytes arrived. `new_frame`: they completed a request, so a frame that is under way began with them."""
        if not under_way:
            self.first_ms = None
            return
        if self.first_ms is None or new_frame:
            self.first_ms = self._began_ms = now_ms
        self._quiet_from_ms = now_ms

    def reading(self, yes: bool, now_ms: int) -> None:
        """Whether the socket is read from now on."""
        if not yes:
            self._unread_from_ms = now_ms
        elif self._unread_from_ms is not None:
            unread_ms = now_ms - max(self._unread_from_ms, self.first_ms or 0)
            self._unread_from_ms = None
            self._began_ms += unread_ms
            self._quiet_from_ms = min(now_ms, self._quiet_from_ms + unread_ms)

    def wrong(self, limits: FrameTimeouts, now_ms: int, *, arrived_bytes: int, pressed: bool) -> str | None:
        """Why the connection must close; None while the frame is in time."""
        if self.first_ms is None:
            return None
        if now_ms - self.first_ms > limits.frame_ms_max:
            return "a request that is not whole in time"
        read_until_ms = now_ms if self._unread_from_ms is None else self._unread_from_ms
        quiet_ms = read_until_ms - self._quiet_from_ms
        if quiet_ms > (limits.pressed_quiet_ms_max if pressed else limits.quiet_ms_max):
            return "half a request"
        slow_ms = read_until_ms - self._began_ms - limits.grace_ms
        if slow_ms > 0 and arrived_bytes * 1000 < slow_ms * limits.bytes_per_s_min:
            return "a request that comes too slowly"
        return None
