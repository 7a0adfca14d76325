"""Traces: the front door decides which requests are traced; services follow the traceparent they are given.

Without a ratio and a collector there is no tracer at all, and no request pays for one.
"""

from typing import Protocol

from kafscale.runtime.stream.frame import RequestMeta


class Span(Protocol):
    """Ended exactly once."""

    @property
    def traceparent(self) -> str: ...

    def end(self) -> None: ...


class Tracer(Protocol):
    def start_root(self, name: str) -> Span | None:
        """At the front door: None when this request is not sampled."""
        ...

    def start_request(self, meta: RequestMeta) -> Span | None:
        """In a service: a child of meta.traceparent; None when that is not sampled."""
        ...

    def close(self) -> None: ...
