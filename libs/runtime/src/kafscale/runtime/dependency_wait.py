"""Waiting for what a service cannot do without: it says so once per change, and serves when it comes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog
from kafscale.runtime.clock import Clock
from kafscale.storage.backoff import Backoff

log = structlog.get_logger("kafscale.process")

T = TypeVar("T")

REMIND_EVERY_MS: Final = 60_000
RETRY_FIRST_MS: Final = 200
RETRY_CAP_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Need(Generic[T]):
    """Something outside; `remedy` is what a person can do when it does not come."""

    what: str
    remedy: str
    probe: Callable[[], Awaitable[T]]
    not_yet: tuple[type[Exception], ...]


async def wait_for(need: Need[T], *, clock: Clock, say: Callable[[str], None]) -> T:
    """What the probe returned when it passed. Other exceptions than `not_yet` are the probe's own bugs."""
    backoff = Backoff(first_ms=RETRY_FIRST_MS, cap_ms=RETRY_CAP_MS)
    began_ms = clock.now_ms()
    said_kind: object = None
    said_ms = began_ms
    while True:
        try:
            found = await need.probe()
        except need.not_yet as error:
            now_ms = clock.now_ms()
            kind = (type(error), getattr(error, "kind", None))
            say(f"waiting for {need.what}: {error}")
            if kind != said_kind or now_ms - said_ms >= REMIND_EVERY_MS:
                log.warning(
                    "waiting",
                    need=need.what,
                    why=str(error),
                    waited_ms=now_ms - began_ms,
                    do=need.remedy,
                )
                said_kind, said_ms = kind, now_ms
        else:
            if said_kind is not None:
                log.info("there it is", need=need.what, waited_ms=clock.now_ms() - began_ms)
            return found
        await backoff.sleep()
