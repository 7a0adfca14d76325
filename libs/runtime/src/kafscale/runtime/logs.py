"""Logs: one event per line, JSON or plain, with the ids of the request at hand.

Secrets and control codes are left out (`redaction.py`), storms are summed (`log_storms.py`), a thread writes
(`log_writer.py`), and what libraries log in the standard way takes the same form. An exception is one field of its line
in JSON, and follows its line in the plain form.
"""

import atexit
import logging
import sys
from contextvars import ContextVar
from typing import Final, Literal

import orjson
import structlog
from kafscale.runtime.log_storms import StormGuard, Storms
from kafscale.runtime.log_writer import LogWriter
from kafscale.runtime.redaction import redact_field
from kafscale.runtime.request_meta import RequestMeta
from kafscale.wire.apis import api_label
from structlog.typing import EventDict, Processor, WrappedLogger

log = structlog.get_logger("kafscale.logs")

# Which request this task or callback works for: set around each handler, inherited by the tasks it makes for itself.
CURRENT_REQUEST: Final[ContextVar[RequestMeta | None]] = ContextVar("kafscale_request", default=None)

CLIENT_ID_SHOWN: Final = 256
"""A client id may be 32 KiB long; no line shows more of it."""

WRITER: Final = LogWriter()
"""The process has one standard error, and so one writer."""

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


class LineLogger:
    """What structlog gives a finished line to. Knows which module's it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def msg(self, line: str | bytes) -> None:
        text = line.encode(errors="backslashreplace") if isinstance(line, str) else line
        WRITER.write(text + b"\n")

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def configure_logs(*, level: str, form: Literal["json", "plain"] | None, **ids: str) -> dict[str, str]:
    """For the whole process, once. What it returns (service, ...) stands on every line and may be added to.

    Logs go to stderr; without a form it decides: plain on a terminal, else JSON.
    """
    if form is None:
        form = "plain" if sys.stderr.isatty() else "json"
    threshold = _LEVELS[level]
    atexit.register(WRITER.flush)  # the last to run: what others log at exit is written too
    WRITER.say_dropped = _say_dropped

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
    structlog.configure(
        processors=[*shared, _json() if form == "json" else _plain()],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_line_logger,
        cache_logger_on_first_use=False,
    )
    _adopt_stdlib(threshold)
    return ids


def say_why_it_ends(sentence: str) -> None:
    """For a process that ends before it serves: a plain line on standard error, after all that was logged."""
    WRITER.flush()
    sys.stderr.write(f"{sentence}\n")


def _line_logger(name: str = "", *_: object) -> LineLogger:
    return LineLogger(name)


def _say_dropped(lines: int) -> None:
    log.warning("log lines dropped, standard error did not take them", lines=lines)


def _json() -> Processor:
    return structlog.processors.JSONRenderer(serializer=orjson.dumps, default=str)


def _plain() -> Processor:
    """Tracebacks without the values of variables: those are not looked through for secrets."""
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


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
