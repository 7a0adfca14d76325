"""The front door's settings; those that Kafka has bear Kafka's names."""

from typing import Final, Self

from kafscale.frontdoor.listeners import ListenersWrong, parse
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.stream.frame import BODY_BYTES_MAX
from pydantic import Field, model_validator

MIB: Final = 1 << 20


class FrontdoorSettings(ServiceSettings):
    listeners: str = Field(
        "PLAINTEXT://127.0.0.1:9092",
        description="Where Kafka clients connect: NAME://host:port, several by commas.",
    )
    advertised_listeners: str = Field(
        "",
        description="What clients are told to dial; behind one load balancer, its address. Default: `listeners`.",
    )
    socket_request_max_bytes: int = Field(
        100 * MIB, ge=1024, le=BODY_BYTES_MAX, description="Largest request."
    )
    max_connections: int = Field(20_000, ge=1, description="Client connections of one process.")
    max_connections_per_ip: int = Field(
        10_000,
        ge=1,
        description="Client connections of one process from one address; behind a load balancer all have its address.",
    )
    frontdoor_first_request_ms: int = Field(
        30_000,
        ge=1_000,
        description="A connection without a whole request for this long from its start is closed.",
    )
    frontdoor_address_memory_percent: int = Field(
        50,
        ge=1,
        le=100,
        description="Of the memory for large requests, what one address may hold; 100 behind a load balancer.",
    )
    connections_max_idle_ms: int = Field(
        600_000, ge=1_000, description="A connection without a request for this long is closed."
    )
    frontdoor_workers: int = Field(
        1, ge=1, le=256, description="Processes that share the listeners, for more cores."
    )
    frontdoor_requests_max: int = Field(
        256, ge=1, description="Requests of one connection in flight; past it the socket is not read."
    )
    frontdoor_request_bytes_max: int = Field(
        32 * MIB,
        ge=1024,
        description="Bytes of requests of one connection in flight; one request may exceed it.",
    )
    frontdoor_unsent_bytes_max: int = Field(
        32 * MIB, ge=1024, description="Bytes of answers of one connection that it has not taken."
    )
    frontdoor_request_timeout_ms: int = Field(
        60_000, ge=1_000, description="Longest time a request without a timeout of its own may take."
    )
    frontdoor_join_wait_ms_max: int = Field(
        1_800_000,
        ge=1_000,
        description="Longest time JoinGroup or SyncGroup may wait for a group's other members.",
    )
    frontdoor_hold_ms_max: int = Field(
        3_000, ge=0, description="Longest time records wait for their partition's next owner."
    )
    frontdoor_notice_ms: int = Field(
        2_000,
        ge=0,
        le=10_000,
        description="While another front door is ready: how long one that drains still takes clients after it has said "
        "that it leaves, so that nobody is sent to a closed port.",
    )
    frontdoor_streams: int = Field(
        1,
        ge=1,
        le=16,
        description="Streams of each kind to each service instance; a connection keeps to one.",
    )

    @model_validator(mode="after")
    def listeners_parse(self) -> Self:
        try:
            parse(self.listeners, setting="KAFSCALE_LISTENERS")
        except ListenersWrong as wrong:
            raise ValueError(str(wrong)) from wrong
        return self
