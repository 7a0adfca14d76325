"""Logs: one event per line, JSON or plain, with the ids of the request at hand.

Secrets are left out (`redaction.py`), storms are summed (`log_storms.py`), and what libraries log in the standard
way takes the same form. An exception is one field of its line in JSON, and follows its line in the plain form.
"""

import logging
import sys
from contextvars import ContextVar
from typing import Any, BinaryIO, Final, Literal, TextIO

import orjson
import structlog
from kafscale.runtime.log_storms import StormGuard, Storms
from kafscale.runtime.redaction import redact_field
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.apis import api_label
from structlog.typing import EventDict, Processor, WrappedLogger

# Which request this task or callback works for: set around each handler, inherited by the tasks it makes for itself.
CURRENT_REQUEST: Final[ContextVar[RequestMeta | None]] = ContextVar("kafscale_request", default=None)

CLIENT_ID_SHOWN: Final = 256
"""A client id may be 32 KiB long; no line shows more of it."""

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def request_ids(meta: RequestMeta) -> dict[str, str | int]:
    """The fields by which every process names a request."""
    ids: dict[str, str | int] = {
        "connection_id": meta.connection_id,
        "correlation_id": meta.correlation_id,
        "api_key": meta.api_key,
        "api": api_label(meta.api_key),
        "api_version": meta.api_version,
    }
    if meta.client_id is not None:
        ids["client_id"] = meta.client_id[:CLIENT_ID_SHOWN]
    if meta.traceparent is not None:
        ids["trace_id"] = meta.traceparent[3:35]
    return ids


def add_request_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    meta = CURRENT_REQUEST.get()
    return event if meta is None else {**request_ids(meta), **event}


def add_logger(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event.setdefault("logger", getattr(logger, "name", ""))
    return event


def leave_out_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {name: redact_field(name, value) for name, value in event.items()}


class NamedBytesLogger(structlog.BytesLogger):
    """Knows which module's it is."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        super().__init__(file)
        self.name = name


class NamedPrintLogger(structlog.PrintLogger):
    def __init__(self, file: TextIO, name: str) -> None:
        super().__init__(file)
        self.name = name


def configure_logs(*, level: str, form: Literal["json", "plain"] | None, **ids: str) -> dict[str, str]:
    """For the whole process, once. What it returns (service, ...) stands on every line and may be added to.

    Logs go to stderr; without a form it decides: plain on a terminal, else JSON.
    """
    if form is None:
        form = "plain" if sys.stderr.isatty() else "json"
    threshold = _LEVELS[level]

    def add_process_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**ids, **event}

    shared: list[Processor] = [
        StormGuard(Storms()),
        structlog.contextvars.merge_contextvars,
        add_request_ids,
        add_logger,
        add_process_ids,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        leave_out_secrets,
    ]
    last, factory = _json() if form == "json" else _plain()
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )
    _adopt_stdlib(threshold)
    return ids


def _json() -> tuple[Processor, Any]:
    def factory(name: str = "", *_: object) -> NamedBytesLogger:
        return NamedBytesLogger(sys.stderr.buffer, name)

    return structlog.processors.JSONRenderer(serializer=orjson.dumps, default=str), factory


def _plain() -> tuple[Processor, Any]:
    """Tracebacks without the values of variables: those are not looked through for secrets."""

    def factory(name: str = "", *_: object) -> NamedPrintLogger:
        return NamedPrintLogger(sys.stderr, name)

    plain_traceback = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=plain_traceback
    ), factory


class _ToStructlog(logging.Handler):
    """Libraries log by the standard way: the same lines, the same format."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(record.name)
        level = min(max(record.levelno, logging.DEBUG), logging.CRITICAL)
        logger.log(level, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def _adopt_stdlib(threshold: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog()]
    root.setLevel(max(threshold, logging.WARNING))
