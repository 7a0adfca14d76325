"""What accompanies a request from the front door to a service: its ids, its limits and its sender. Pure."""

import msgspec


class RequestMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a request; its body travels separately. StreamClient sets request_id."""

    connection_id: int
    api_key: int
    api_version: int
    correlation_id: int = 0
    request_id: int = 0
    lane_epoch: int = 0
    age_budget_ms: int = 0  # 0: no limit
    revision: int = 0
    log_start_revision: int = 0
    listener: str | None = None
    principal: str | None = None
    peer: str | None = None
    client_id: str | None = None
    traceparent: str | None = None
