"""Logs: one event per line, JSON or plain, with the ids of the request at hand."""

import logging
import sys
from contextvars import ContextVar
from typing import Final, Literal

import orjson
import structlog
from kafscale.runtime.stream.frame import RequestMeta
from structlog.typing import EventDict, WrappedLogger

# Which request this task or callback works for: set by the stream server, inherited by its tasks.
CURRENT_REQUEST: Final[ContextVar[RequestMeta | None]] = ContextVar("kafscale_request", default=None)

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def add_request_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    meta = CURRENT_REQUEST.get()
    if meta is not None:
        event.setdefault("connection_id", meta.connection_id)
        event.setdefault("api_key", meta.api_key)
        if meta.client_id is not None:
            event.setdefault("client_id", meta.client_id)
        if meta.traceparent is not None:
            event.setdefault("trace_id", meta.traceparent[3:35])
    return event


def configure_logs(*, level: str, form: Literal["json", "plain"], **ids: str) -> dict[str, str]:
    """For the whole process, once. What it returns (service, ...) stands on every line and may be added to.

    Logs go to stderr.
    """
    threshold = _LEVELS[level]

    def add_process_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**ids, **event}

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_request_ids,
        add_process_ids,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form == "json":
        structlog.configure(
            processors=[
                *shared,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(serializer=orjson.dumps, default=str),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(threshold),
            logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
            cache_logger_on_first_use=False,
        )
    else:
        structlog.configure(
            processors=[*shared, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())],
            wrapper_class=structlog.make_filtering_bound_logger(threshold),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            cache_logger_on_first_use=False,
        )
    _adopt_stdlib(threshold)
    return ids


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
