"""Logs: one event per line, JSON or plain, with the ids of the current request.

`redaction.py` removes secrets and control codes, `log_storms.py` limits repeated lines, and a thread of `log_writer.py`
writes. Lines that libraries log by the standard module get the same form. In JSON an exception is a field of its line;
in the plain form it follows its line.
"""

import atexit
import logging
import sys
from contextvars import ContextVar
from typing import Final, Literal

import orjson
import structlog
from kafscale.runtime.log_storms import AUDIT, StormGuard, Storms
from kafscale.runtime.log_writer import LogWriter
from kafscale.runtime.redaction import printable, redact_field
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.apis import api_label
from structlog.typing import EventDict, Processor, WrappedLogger

log = structlog.get_logger("kafscale.logs")

# The request that this task or callback works for. Set around each handler; tasks that the handler creates inherit it.
CURRENT_REQUEST: Final[ContextVar[RequestMeta | None]] = ContextVar("kafscale_request", default=None)

CLIENT_ID_SHOWN: Final = 256
"""Characters. A client id may be 32 KiB long."""

WRITER: Final = LogWriter()
"""The process has one standard error, and so one writer."""


def request_ids(meta: RequestMeta) -> dict[str, str | int]:
    """The fields that identify a request in the logs of every process."""
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
    if event["logger"] == AUDIT:
        return {name: printable(value) for name, value in event.items()}
    return {name: redact_field(name, value) for name, value in event.items()}


class LineLogger:
    """Receives finished lines from structlog. `name` is the logger's module."""

    def __init__(self, name: str = "", *_: object) -> None:
        self.name = name

    def msg(self, line: str | bytes) -> None:
        text = line.encode(errors="backslashreplace") if isinstance(line, str) else line
        WRITER.write(text + b"\n")

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def configure_logs(*, level: str, form: Literal["json", "plain"] | None, **ids: str) -> dict[str, str]:
    """Configures the logs of this process; call it once. Every line carries `ids`; the caller may add to the result.

    Logs go to standard error. The default form is plain on a terminal, else JSON.
    """
    if form is None:
        form = "plain" if sys.stderr.isatty() else "json"
    threshold = logging.getLevelNamesMapping()[level.upper()]
    atexit.register(WRITER.flush)  # runs last, so that lines logged at exit are written too
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
    as_json: Processor = structlog.processors.JSONRenderer(serializer=orjson.dumps, default=str)
    structlog.configure(
        processors=[*shared, as_json if form == "json" else _plain()],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=LineLogger,
        cache_logger_on_first_use=False,
    )
    _adopt_stdlib(threshold)
    return ids


def say_why_it_ends(sentence: str) -> None:
    """Writes a plain line to standard error after all log lines, for a process that ends before it serves."""
    WRITER.flush()
    sys.stderr.write(f"{sentence}\n")


def _say_dropped(lines: int) -> None:
    log.warning("log lines dropped", lines=lines)


def _plain() -> Processor:
    """Tracebacks show no values of variables, because redaction does not see them."""
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


class _ToStructlog(logging.Handler):
    """Passes records of the standard logging module to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(record.name)
        level = min(max(record.levelno, logging.DEBUG), logging.CRITICAL)
        logger.log(level, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def _adopt_stdlib(threshold: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_ToStructlog()]
    root.setLevel(max(threshold, logging.WARNING))
