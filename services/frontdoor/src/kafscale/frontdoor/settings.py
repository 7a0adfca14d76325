"""The front door's settings; those that Kafka has bear Kafka's names."""

from typing import Final, Literal, Self

from kafscale.frontdoor.authentication.mechanisms import OAUTHBEARER
from kafscale.frontdoor.authentication.sasl_settings import (
    MechanismsWrong,
    UrlWrong,
    all_mechanisms,
    mechanisms_of,
    parse_keys_url,
)
from kafscale.frontdoor.listeners.connection_limits import read_overrides
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity, read_securities
from kafscale.frontdoor.listeners.listeners import ListenersWrong, parse
from kafscale.frontdoor.quotas.connection_rates import read_rates
from kafscale.runtime.settings import Addresses, ServiceSettings
from kafscale.runtime.stream.frame import BODY_BYTES_MAX
from pydantic import Field, field_validator, model_validator

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
    max_connection_creation_rate: str = Field(
        "",
        description="New connections per second of one process; NAME=rate adds that of a listener: 200,EXTERNAL=50. "
        "Further ones begin later. Default: unlimited.",
    )
    listener_security_protocol_map: str = Field(
        "",
        description="What each listener speaks: NAME:PROTOCOL, comma-separated; PLAINTEXT, SSL, SASL_PLAINTEXT or "
        "SASL_SSL. Default: the protocol of which the listener has the name, else PLAINTEXT.",
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
    frontdoor_announce_after_ms: int = Field(
        0,
        ge=0,
        le=600_000,
        description="Metadata lists a front door only this long after its start, if another front door is ready. Set "
        "it where a front door that restarts gets a new address. Clients and resolvers must forget the old one sooner.",
    )
    frontdoor_plaintext_services: bool = Field(
        False,
        description="Also connect to services that have no certificate, although this front door has one. Only while a "
        "running cluster gets its certificates.",
    )

    transaction_version: int = Field(
        2,
        ge=0,
        le=2,
        description="Level of the feature transaction.version that clients see, if KAFSCALE_TRANSACTIONS is on. At 2, "
        "clients of Kafka 4.0 and later use the protocol of KIP-890.",
    )

    sasl_enabled_mechanisms: str = Field(
        "SCRAM-SHA-256,SCRAM-SHA-512",
        description="Mechanisms of listeners with SASL, comma-separated; NAME=A;B sets those of one listener. "
        "SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER.",
    )
    sasl_server_max_receive_size: int = Field(
        524_288, ge=1024, description="Largest frame before a client has authenticated."
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = Field(
        None, description="Keys that sign the tokens of OAUTHBEARER (JWKS): https://... or file:///..."
    )
    sasl_oauthbearer_expected_issuer: str | None = Field(
        None, description="The claim `iss` of OAUTHBEARER's tokens."
    )
    sasl_oauthbearer_expected_audience: Addresses = Field(
        (), description="The claim `aud` of OAUTHBEARER's tokens must name one of these, comma-separated."
    )
    sasl_oauthbearer_sub_claim_name: str = Field(
        "sub", min_length=1, description="Claim of OAUTHBEARER's tokens that holds the user's name."
    )
    sasl_oauthbearer_clock_skew_seconds: int = Field(
        30, ge=0, le=600, description="Difference of clocks that is allowed for `exp` and `nbf` of tokens."
    )
    connection_failed_authentication_delay_ms: int = Field(
        100,
        ge=0,
        le=10_000,
        description="Delay of the answer to a failed authentication, which closes the connection.",
    )
    access_stale_ms: int = Field(
        300_000,
        ge=10_000,
        description="While etcd is away, users and ACLs hold for this time. Then logins with passwords, and with an "
        "authorizer all connections, are closed.",
    )
    quota_scope: Literal["broker", "cluster"] = Field(
        "broker",
        description="Whether each front door enforces the whole quota of a client, as a broker of Kafka, or all front "
        "doors together.",
    )
    quota_window_num: int = Field(
        11,
        ge=2,
        le=60,
        description="Samples in the window over which the usage of clients with quotas is taken.",
    )
    quota_window_size_seconds: int = Field(1, ge=1, le=60, description="Length of one of these samples.")
    authentication_timeout_ms: int = Field(
        30_000,
        ge=1_000,
        description="Longest time for a TLS handshake and SASL authentication together; then the connection is closed.",
    )

    @field_validator("sasl_oauthbearer_expected_audience", mode="before")
    @classmethod
    def split_audiences(cls, value: object) -> object:
        return cls.split_commas(value)

    @model_validator(mode="after")
    def mechanisms_are_complete(self) -> Self:
        try:
            enabled = all_mechanisms(self.sasl_enabled_mechanisms)
            if self.sasl_oauthbearer_jwks_endpoint_url is not None:
                parse_keys_url(self.sasl_oauthbearer_jwks_endpoint_url)
        except MechanismsWrong as wrong:
            raise ValueError(str(wrong)) from wrong
        except UrlWrong as wrong:
            raise ValueError(f"KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: {wrong}") from wrong
        needed = (
            self.sasl_oauthbearer_jwks_endpoint_url,
            self.sasl_oauthbearer_expected_issuer,
            self.sasl_oauthbearer_expected_audience,
        )
        if OAUTHBEARER in enabled and not all(needed):
            raise ValueError(
                "OAUTHBEARER needs KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL, ..._EXPECTED_ISSUER and "
                "..._EXPECTED_AUDIENCE: without them any token of the issuer would do"
            )
        return self

    @model_validator(mode="after")
    def listeners_parse(self) -> Self:
        try:
            for one in self.securities().values():
                if one.protocol.uses_sasl:
                    mechanisms_of(self.sasl_enabled_mechanisms, one.name)
            read_overrides(self.max_connections_per_ip_overrides)
            self.connection_rates()
        except (ListenersWrong, MechanismsWrong) as wrong:
            raise ValueError(str(wrong)) from wrong
        return self

    @property
    def has_logins(self) -> bool:
        """Whether the clients of any listener log in."""
        return any(one.protocol.uses_sasl for one in self.securities().values())

    def connection_rates(self) -> dict[str | None, int]:
        """By listener; that of the process under None. Raises ListenersWrong, but not after validation."""
        return read_rates(self.max_connection_creation_rate, self._listener_names())

    def _listener_names(self) -> list[str]:
        return [listener.name for listener in parse(self.listeners, setting="KAFSCALE_LISTENERS")]

    def securities(self) -> dict[str, ListenerSecurity]:
        """How each listener is secured, by its name. Raises ListenersWrong, but not after validation."""
        texts = {name: value for name, value in self if isinstance(value, str)}
        return read_securities(self._listener_names(), texts)
