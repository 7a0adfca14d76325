"""The front door's settings; those that Kafka has bear Kafka's names."""

from typing import Final, Self

from kafscale.frontdoor.connection_limits import read_overrides
from kafscale.frontdoor.listener_security import ListenerSecurity, read_securities, refuse_unserved
from kafscale.frontdoor.listeners import ListenersWrong, parse
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.stream.frame import BODY_BYTES_MAX
from pydantic import Field, model_validator

MIB: Final = 1 << 20


class FrontdoorSettings(ServiceSettings):
    listeners: str = Field(
        "PLAINTEXT://127.0.0.1:9092",
        description="Where Kafka clients connect: NAME://host:port, comma-separated.",
    )
    advertised_listeners: str = Field(
        "",
        description="Addresses that clients receive; behind one load balancer, its address. Default: `listeners`.",
    )
    socket_request_max_bytes: int = Field(
        100 * MIB, ge=1024, le=BODY_BYTES_MAX, description="Largest request."
    )
    max_connections: int = Field(20_000, ge=1, description="Client connections of one process.")
    max_connections_per_ip: int = Field(
        10_000,
        ge=1,
        description="Client connections of one process from one address; a load balancer is one address.",
    )
    max_connections_per_ip_overrides: str = Field(
        "",
        description="Other values of `max_connections_per_ip` for some addresses: address:count, comma-separated.",
    )
    listener_security_protocol_map: str = Field(
        "",
        description="What each listener speaks: NAME:PLAINTEXT or NAME:SSL, comma-separated. Default: PLAINTEXT, "
        "except for the listener SSL.",
    )
    ssl_certificate: str = Field(
        "", description="File with the certificate of listeners with TLS, and its chain (PEM)."
    )
    ssl_key: str = Field("", description="File with the key of the certificate (PEM).")
    ssl_key_password_file: str = Field("", description="File with the password of an encrypted key.")
    ssl_ca: str = Field(
        "", description="File with the CAs that sign clients' certificates, and their revocation lists (PEM)."
    )
    ssl_client_auth: str = Field(
        "", description="Whether clients need a certificate: none, requested, required. Default: none."
    )
    ssl_principal_mapping_rules: str = Field(
        "", description="Rules that make a principal's name of a certificate's name. Default: DEFAULT."
    )
    ssl_enabled_protocols: str = Field("", description="Versions of TLS. Default: TLSv1.2,TLSv1.3.")
    ssl_cipher_suites: str = Field(
        "",
        description="Cipher suites of TLS 1.2, by Java's or OpenSSL's names. Default: those with ECDHE and AEAD.",
    )
    proxy_protocol: str = Field(
        "",
        description="Listeners whose connections begin with a PROXY protocol header, and the networks of the proxies: "
        "NAME=network;network.",
    )
    authentication_timeout_ms: int = Field(
        30_000, ge=1_000, description="Longest time until a client has done the TLS handshake."
    )
    frontdoor_first_request_ms: int = Field(
        30_000,
        ge=1_000,
        description="A new connection without a whole request is closed after this time.",
    )
    frontdoor_address_memory_percent: int = Field(
        50,
        ge=1,
        le=100,
        description="Share of the memory for large requests that one address may use; 100 behind a load balancer.",
    )
    connections_max_idle_ms: int = Field(
        600_000, ge=1_000, description="A connection without a request is closed after this time."
    )
    frontdoor_workers: int = Field(
        1, ge=1, le=256, description="Processes that share the listeners, to use more cores."
    )
    frontdoor_requests_max: int = Field(
        256, ge=1, description="Requests of one connection in flight; beyond it the socket is not read."
    )
    frontdoor_request_bytes_max: int = Field(
        32 * MIB,
        ge=1024,
        description="Bytes of requests of one connection in flight; one request may exceed it.",
    )
    frontdoor_unsent_bytes_max: int = Field(
        32 * MIB, ge=1024, description="Bytes of responses that one connection has not read yet."
    )
    frontdoor_request_timeout_ms: int = Field(
        60_000, ge=1_000, description="Longest time that a request without its own timeout may take."
    )
    frontdoor_join_wait_ms_max: int = Field(
        1_800_000,
        ge=1_000,
        description="Longest time that JoinGroup or SyncGroup may wait for a group's other members.",
    )
    frontdoor_hold_ms_max: int = Field(
        3_000, ge=0, description="Longest time that records wait for their partition's next owner."
    )
    frontdoor_notice_ms: int = Field(
        2_000,
        ge=0,
        le=10_000,
        description="How long a draining front door still accepts clients after its notice in etcd, so that no client "
        "gets a closed port. Only while another front door is ready.",
    )
    frontdoor_streams: int = Field(
        1,
        ge=1,
        le=16,
        description="Streams of each kind to each service instance; a connection uses one of them.",
    )

    @model_validator(mode="after")
    def listeners_parse(self) -> Self:
        try:
            refuse_unserved(self.securities().values())
            read_overrides(self.max_connections_per_ip_overrides)
        except ListenersWrong as wrong:
            raise ValueError(str(wrong)) from wrong
        return self

    def securities(self) -> dict[str, ListenerSecurity]:
        """How each listener is secured, by its name. Raises ListenersWrong, but not after validation."""
        names = [listener.name for listener in parse(self.listeners, setting="KAFSCALE_LISTENERS")]
        return read_securities(names, self)
