"""The settings that every service shares: numbers, names and addresses from KAFSCALE_* variables.

Services subclass ServiceSettings in their own settings.py; a field `x_y` is the variable KAFSCALE_X_Y.
Values only: nothing here opens, connects or decides.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from kafscale.access.principals import Principal, parse_super_users
from kafscale.runtime.addresses import check_etcd_url, check_redis_url, check_url, has_password, split_address
from kafscale.storage.keys import check_namespace
from kafscale.storage.objects import EncryptionKind, StoreKind
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MIB = 1 << 20
Addresses = Annotated[tuple[str, ...], NoDecode]
Principals = Annotated[frozenset[Principal], NoDecode]


class ServiceSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="KAFSCALE_", frozen=True, extra="ignore")

    namespace: str = Field("default", description="One namespace is one cluster in a shared etcd and bucket.")
    node_id: int | None = Field(
        None, ge=0, description="Fixed node id. Default: the lowest free one is leased."
    )
    rack: str = Field("", description="The zone this process runs in.")

    etcd_endpoints: Addresses = Field(
        ("http://127.0.0.1:2379",), description="etcd's client URLs, comma-separated."
    )
    etcd_user: str | None = Field(None, description="User for etcd's authentication.")
    etcd_password: SecretStr | None = Field(None, description="Password for etcd's authentication.")
    etcd_password_file: Path | None = Field(
        None, description="File that holds this password instead. It is read again at each login."
    )
    etcd_ca: Path | None = Field(None, description="CA that signed etcd's certificate (PEM).")
    etcd_cert: Path | None = Field(None, description="Client certificate for etcd (PEM).")
    etcd_key: Path | None = Field(None, description="Key of the client certificate for etcd (PEM).")
    etcd_quota_bytes: int = Field(
        2 << 30,
        ge=16 * MIB,
        description="The value of etcd's --quota-backend-bytes. etcd from 3.6 on reports its own.",
    )

    object_store: StoreKind | None = Field(
        None,
        description="The store of the segments. Default: memory or dir if their setting is given, else s3.",
    )
    object_dir: Path | None = Field(None, description="Directory of the object store `dir`.")
    object_dir_kept_bytes: int = Field(
        0,
        ge=0,
        description="Free bytes that the store `dir` leaves on its disk, for etcd if it is on the same one.",
    )
    use_memory_s3: bool = Field(
        False, description="Keep objects in a temporary directory that is removed at exit."
    )
    s3_bucket: str = Field("kafscale", description="Bucket of all objects.")
    s3_region: str = Field("us-east-1", description="Region of the bucket.")
    s3_endpoint: str | None = Field(None, description="URL of an S3-compatible server. Default: AWS.")
    s3_access_key_id: str | None = Field(
        None, description="Access key. Default: the usual AWS credential chain."
    )
    s3_secret_access_key: SecretStr | None = Field(None, description="Secret of the access key.")
    s3_payload_signing: bool = Field(
        False, description="Sign S3 bodies with SHA-256 (costs about 5 ms per MB)."
    )

    s3_sse: EncryptionKind | None = Field(
        None, description="Server-side encryption of all objects. Default: the bucket's own setting."
    )
    s3_sse_kms_key_id: str | None = Field(
        None, description="Key for KAFSCALE_S3_SSE=aws:kms. Default: the account's key for S3."
    )

    grpc_listen: str = Field(
        "127.0.0.1:0", description="Address of the gRPC server; port 0 takes a free one."
    )
    grpc_advertise: str | None = Field(
        None, description="Address at which other processes reach the gRPC server."
    )
    grpc_certificate: Path | None = Field(
        None, description="Certificate of this process for the other processes, with its chain (PEM)."
    )
    grpc_key: Path | None = Field(None, description="Key of KAFSCALE_GRPC_CERTIFICATE (PEM).")
    grpc_ca: Path | None = Field(
        None, description="CA that signed the certificates of all processes of the cluster (PEM)."
    )
    authorizer: Literal["none", "acl"] = Field(
        "none",
        description="What decides about requests. `none`: every client may do everything. `acl`: the stored ACLs, as "
        "Kafka's StandardAuthorizer. All processes of a cluster need the same value.",
    )
    super_users: Principals = Field(
        frozenset(), description="Principals that ACLs do not limit: User:admin;User:ops."
    )
    allow_everyone_if_no_acl_found: bool = Field(
        False, description="Whether all users may use a resource to which no ACL applies."
    )
    http_listen: str = Field("127.0.0.1:0", description="Address of /livez, /readyz and /metrics.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level that is logged."
    )
    log_format: Literal["json", "plain"] | None = Field(
        None,
        description="One JSON object or one readable line per event. Default: plain on a terminal, else json.",
    )
    trace_exporter: Literal["otlp", "console", "none"] | None = Field(
        None,
        description="Destination of traces: KAFSCALE_OTLP_ENDPOINT (if only that is set, `otlp`) or standard error.",
    )
    trace_ratio: float = Field(
        0.01, ge=0, le=1, description="Share of requests that are traced; only the front door uses it."
    )
    otlp_endpoint: str | None = Field(
        None, description="OTLP gRPC collector for traces, http://host:4317 or https://host:4317."
    )
    drain_timeout_ms: int = Field(30_000, ge=0, description="Longest graceful drain after SIGTERM.")
    memory_bytes: int = Field(512 * MIB, ge=16 * MIB, description="Memory limit for requests and buffers.")

    segment_bytes: int = Field(4 * MIB, ge=4096, description="A segment is sealed when it has this size.")
    flush_interval_ms: int = Field(
        250,
        ge=0,
        description="Longest time a record waits for its bundle to be sealed, if there is budget for it.",
    )
    produce_timeout_min_ms: int = Field(
        5_000,
        ge=0,
        le=120_000,
        description="Shortest wait of a Produce with acks=all for its flush; a shorter timeout of a client is raised.",
    )
    cache_bytes: int = Field(128 * MIB, ge=0, description="Segments kept in memory by a fetch service.")
    readahead_segments: int = Field(2, ge=0, description="Segments fetched ahead of a sequential reader.")

    connections_max_reauth_ms: int = Field(
        0,
        ge=0,
        description="Longest time until a client must authenticate again with SASL (KIP-368). 0: when its token ends.",
    )

    answer_bytes_max: int = Field(
        32 * MIB,
        ge=MIB,
        description="Largest answer of an admin or a coordinator; a request that asks for more fails with an error.",
    )

    retention_every_ms: int = Field(
        3_600_000, ge=1, description="Time from the end of a retention run to the next run."
    )
    compaction_every_ms: int = Field(
        3_600_000, ge=1, description="Time from the end of a compaction round to the next round."
    )

    group_min_session_timeout_ms: int = Field(
        6_000, ge=1, description="Shortest session timeout that a member of a classic group may request."
    )
    group_max_session_timeout_ms: int = Field(
        1_800_000, ge=1, description="Longest session timeout that a member of a classic group may request."
    )
    group_initial_rebalance_delay_ms: int = Field(
        3_000, ge=0, description="How long the first rebalance of an empty group waits for more members."
    )
    group_max_size: int = Field(1_000, ge=1, description="Members that a group may have.")
    group_consumer_session_timeout_ms: int = Field(
        45_000, ge=1, description="Session timeout of members of the new protocol (KIP-848)."
    )
    group_consumer_min_session_timeout_ms: int = Field(
        45_000, ge=1, description="Shortest session timeout that a group's configs may set."
    )
    group_consumer_max_session_timeout_ms: int = Field(
        60_000, ge=1, description="Longest session timeout that a group's configs may set."
    )
    group_consumer_heartbeat_interval_ms: int = Field(
        5_000, ge=1, description="Heartbeat interval of members of the new protocol (KIP-848)."
    )
    group_consumer_min_heartbeat_interval_ms: int = Field(
        5_000, ge=1, description="Shortest heartbeat interval that a group's configs may set."
    )
    group_consumer_max_heartbeat_interval_ms: int = Field(
        15_000, ge=1, description="Longest heartbeat interval that a group's configs may set."
    )

    offsets_retention_minutes: int = Field(
        10_080, ge=1, description="How long the offsets of a group without members are kept."
    )
    offset_metadata_max_bytes: int = Field(
        4_096,
        ge=0,
        description="Longest metadata that a committed offset may carry, in characters (UTF-16 units), as in Kafka.",
    )

    transactions: bool = Field(
        True,
        description="Whether producers may have a transactional.id. All front doors, produce instances and "
        "coordinators need the same value; docs/transactions.md says in which order to change it.",
    )

    redis_url: SecretStr | None = Field(
        None,
        description="Redis that produce and fetch services share as a segment cache. Default: none.",
    )
    redis_password_file: Path | None = Field(
        None, description="File with the password for KAFSCALE_REDIS_URL, if the URL has none."
    )
    redis_mac_key_file: Path | None = Field(
        None,
        description="File with the keys that sign entries in Redis, one per line, hex or base64, 32 to 64 bytes each. "
        "The first signs, all verify. Default: entries have a checksum only.",
    )
    redis_timeout_ms: int = Field(
        20,
        ge=1,
        description="Longest call to Redis per MiB or part of it; after it the service reads the object store.",
    )
    redis_max_object_bytes: int = Field(8 * MIB, ge=1, description="Larger segments are not cached in Redis.")
    redis_ttl_ms: int = Field(
        3_600_000,
        ge=1,
        description="Time to live of a segment in Redis.",
    )

    @field_validator("namespace")
    @classmethod
    def check_name(cls, value: str) -> str:
        return check_namespace(value)

    @field_validator("etcd_endpoints", mode="before")
    @classmethod
    def split_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("etcd_endpoints")
    @classmethod
    def check_endpoints(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("at least one etcd endpoint is needed")
        return tuple(map(check_etcd_url, value))

    @field_validator("super_users", mode="before")
    @classmethod
    def split_principals(cls, value: object) -> object:
        return parse_super_users(value) if isinstance(value, str) else value

    @field_validator("otlp_endpoint")
    @classmethod
    def check_collector(cls, value: str | None) -> str | None:
        return None if value is None else check_url(value)

    @field_validator("grpc_listen", "grpc_advertise", "http_listen")
    @classmethod
    def check_address(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @field_validator("redis_url", mode="before")
    @classmethod
    def check_redis(cls, value: object) -> object:
        if isinstance(value, str):
            return check_redis_url(value) if value else None
        return value

    @model_validator(mode="after")
    def check_together(self) -> Self:
        if self.object_store_kind == "dir" and self.object_dir is None:
            raise ValueError("KAFSCALE_OBJECT_STORE=dir needs KAFSCALE_OBJECT_DIR")
        if self.trace_exporter == "otlp" and self.otlp_endpoint is None:
            raise ValueError("KAFSCALE_TRACE_EXPORTER=otlp needs KAFSCALE_OTLP_ENDPOINT")
        passwords = [given for given in (self.etcd_password, self.etcd_password_file) if given is not None]
        if len(passwords) != (self.etcd_user is not None):
            raise ValueError(
                "KAFSCALE_ETCD_USER needs KAFSCALE_ETCD_PASSWORD_FILE or KAFSCALE_ETCD_PASSWORD, and they need the user"
            )
        if (self.etcd_cert is None) != (self.etcd_key is None):
            raise ValueError("KAFSCALE_ETCD_CERT and KAFSCALE_ETCD_KEY are given together or not at all")
        if len({path is None for path in (self.grpc_certificate, self.grpc_key, self.grpc_ca)}) > 1:
            raise ValueError(
                "KAFSCALE_GRPC_CERTIFICATE, KAFSCALE_GRPC_KEY and KAFSCALE_GRPC_CA are given together or not at all"
            )
        url = self.redis_url
        if self.redis_password_file is not None and url is not None and has_password(url.get_secret_value()):
            raise ValueError(
                "KAFSCALE_REDIS_PASSWORD_FILE and a password in KAFSCALE_REDIS_URL exclude each other"
            )
        if self.s3_sse_kms_key_id is not None and self.s3_sse != "aws:kms":
            raise ValueError("KAFSCALE_S3_SSE_KMS_KEY_ID needs KAFSCALE_S3_SSE=aws:kms")
        if (self.s3_access_key_id is None) != (self.s3_secret_access_key is None):
            raise ValueError(
                "KAFSCALE_S3_ACCESS_KEY_ID and KAFSCALE_S3_SECRET_ACCESS_KEY are given together or not at all"
            )
        return self

    @property
    def trace_exporter_kind(self) -> Literal["otlp", "console"] | None:
        if self.trace_exporter is not None:
            return None if self.trace_exporter == "none" else self.trace_exporter
        return None if self.otlp_endpoint is None else "otlp"

    @property
    def object_store_kind(self) -> StoreKind:
        if self.object_store is not None:
            return self.object_store
        if self.use_memory_s3:
            return "memory"
        return "dir" if self.object_dir is not None else "s3"
