"""The logs of all simulated processes, as lines of the simulation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

import structlog
from kafscale.runtime.process import leaves
from kafscale.testkit.instances import InstanceLoop

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "exception": 40, "critical": 50}

MISTAKES: Final = ("process failed",)


@contextmanager
def captured(
    loop: InstanceLoop, note: Callable[[str], None], lowest: int, broken: list[str]
) -> Iterator[None]:
    """Lines from the level `lowest` on. An exception is named by its kind and text, without a traceback. A process that
    fails by a mistake of its own adds to `broken`."""

    def line(level: int, event: object, fields: MutableMapping[str, Any]) -> None:
        error = fields.pop("exc_info", None)
        if level < lowest:
            return
        who = "simulation" if loop.current is None else loop.current.name
        if event in MISTAKES:
            broken.append(f"failed: {who}: {event}{_named(error)}")
        told = "".join(f" {name}={value}" for name, value in sorted(fields.items()))
        note(f"{who} {event}{told}{_named(error)}")

    def process(_logger: object, method: str, fields: MutableMapping[str, Any]) -> str:
        line(LEVELS.get(method, 20), fields.pop("event"), fields)
        raise structlog.DropEvent

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            line(record.levelno, record.getMessage(), {"exc_info": error})

    handler, root = Handler(), logging.getLogger()
    root.addHandler(handler)
    structlog.configure(processors=[process], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.removeHandler(handler)


def _named(error: object) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "".join(f" {each!r}" for each in leaves(error))
    if error is True:
        import sys

        error = sys.exc_info()[1]
    return f" {error!r}" if isinstance(error, BaseException) else ""
