"""The dependencies of a service, etcd and the object store: how they are opened, probed and waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog
from kafscale.runtime.clock import Clock
from kafscale.runtime.grpc_identity import GrpcIdentity, PemFiles
from kafscale.runtime.redaction import redact_text
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.tracing import TracedEtcd
from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.client import EtcdClient, EtcdError, EtcdTls
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import (
    ObjectStore,
    S3Config,
    S3Encryption,
    StoreConfig,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    StoreUnsuitable,
    open_store,
)
from kafscale.storage.rights.objects import StoreUse

log = structlog.get_logger("kafscale.process")

T = TypeVar("T")

PROBE_TIMEOUT_S: Final = 2.0
REMIND_EVERY_MS: Final = 60_000
RETRY_FIRST_MS: Final = 200
RETRY_CAP_MS: Final = 5_000
UNSUITABLE_PROBES: Final = 3
UNSUITABLE_PAUSE_S: Final = 1.0
"""An S3 server that has just started may not yet keep its conditions: two racing PUTs succeeded on a SeaweedFS 0.2 s
after its start. Only a store that fails each of these probes is unsuitable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need(Generic[T]):
    """A dependency to wait for. `remedy` is what an operator can do if it stays unavailable."""

    what: str
    remedy: str
    probe: Callable[[], Awaitable[T]]
    not_yet: tuple[type[Exception], ...]


async def wait_for(need: Need[T], *, clock: Clock, say: Callable[[str], None]) -> T:
    """Probes until the probe passes, and returns its result. Logs each new reason, and a reminder once a minute.

    Exceptions other than `not_yet` pass through.
    """
    backoff = Backoff(first_ms=RETRY_FIRST_MS, cap_ms=RETRY_CAP_MS)
    began_ms = clock.now_ms()
    said_kind: object = None
    said_ms = began_ms
    while True:
        try:
            found = await need.probe()
        except need.not_yet as error:
            now_ms = clock.now_ms()
            kind = (type(error), getattr(error, "kind", None))
            say(f"waiting for {need.what}: {error}")
            if kind != said_kind or now_ms - said_ms >= REMIND_EVERY_MS:
                log.warning(
                    "dependency unavailable",
                    need=need.what,
                    why=str(error),
                    waited_ms=now_ms - began_ms,
                    do=need.remedy,
                )
                said_kind, said_ms = kind, now_ms
        else:
            if said_kind is not None:
                log.info("dependency available", need=need.what, waited_ms=clock.now_ms() - began_ms)
            return found
        await backoff.sleep()


def connect_etcd(settings: ServiceSettings) -> EtcdClient:
    """Connects with the first request. Raises BadEndpoint, or OSError if a certificate cannot be read."""
    tls = None
    if settings.etcd_ca or settings.etcd_cert or settings.etcd_key:
        tls = EtcdTls(ca=settings.etcd_ca, cert=settings.etcd_cert, key=settings.etcd_key)
        tls.credentials()  # so that a missing file is said at once, not by the first request
    password = settings.etcd_password
    client = EtcdClient if settings.trace_exporter_kind is None else TracedEtcd
    return client.connect(
        settings.etcd_endpoints,
        tls=tls,
        user=settings.etcd_user,
        password=password.get_secret_value() if password is not None else settings.etcd_password_file,
    )


def open_identity(settings: ServiceSettings) -> GrpcIdentity | None:
    """None: the settings name no certificate. Raises IdentityUnusable."""
    certificate, key, ca = settings.grpc_certificate, settings.grpc_key, settings.grpc_ca
    if certificate is None or key is None or ca is None:
        return None
    return GrpcIdentity(PemFiles(certificate, key, ca))


def etcd_need(settings: ServiceSettings, etcd: EtcdClient, keyspace: Keyspace) -> Need[object]:
    """The probe is a linearizable read: it passes only if a quorum answers."""
    return Need(
        what=redact_text(f"etcd at {', '.join(settings.etcd_endpoints)}"),
        remedy="start etcd, or name a running one in KAFSCALE_ETCD_ENDPOINTS",
        probe=lambda: etcd.range(keyspace.cluster(), timeout_s=PROBE_TIMEOUT_S),
        not_yet=(EtcdError,),
    )


def store_config(settings: ServiceSettings, use: StoreUse = StoreUse.CHANGE) -> StoreConfig:
    """`use`: of the process that opens the store."""
    secret = settings.s3_secret_access_key
    return StoreConfig(
        kind=settings.object_store_kind,
        directory=settings.object_dir,
        kept_bytes=settings.object_dir_kept_bytes,
        s3=S3Config(
            bucket=settings.s3_bucket,
            region=settings.s3_region,
            endpoint=settings.s3_endpoint,
            access_key_id=settings.s3_access_key_id,
            secret_access_key=secret.get_secret_value() if secret is not None else None,
            payload_signing=settings.s3_payload_signing,
            encryption=None
            if settings.s3_sse is None
            else S3Encryption(kind=settings.s3_sse, kms_key_id=settings.s3_sse_kms_key_id),
            probe_writes=use is StoreUse.CHANGE,
        ),
    )


def open_object_store(settings: ServiceSettings, use: StoreUse = StoreUse.CHANGE) -> ObjectStore:
    return open_store(store_config(settings, use))


async def probe_store(store: ObjectStore) -> None:
    """Raises StoreUnsuitable if all of UNSUITABLE_PROBES probes find the store unsuitable, and any other StoreError."""
    for left in reversed(range(UNSUITABLE_PROBES)):
        try:
            return await store.probe()
        except StoreUnsuitable as unsuitable:
            if not left:
                raise
            log.warning("object store unsuitable", why=str(unsuitable), probes_left=left)
        await asyncio.sleep(UNSUITABLE_PAUSE_S)


def store_need(settings: ServiceSettings, store: ObjectStore) -> Need[None]:
    """StoreUnsuitable ends the wait: such a store would lose data."""
    match settings.object_store_kind:
        case "s3":
            what = f"bucket {settings.s3_bucket} at {settings.s3_endpoint or 'AWS ' + settings.s3_region}"
            remedy = "start the S3 server, create the bucket, or correct the KAFSCALE_S3_* settings"
        case _:
            what = f"directory {settings.object_dir or 'for objects'}"
            remedy = "make the directory of KAFSCALE_OBJECT_DIR writable, with room on its disk"
    return Need(
        what=redact_text(what),
        remedy=remedy,
        probe=lambda: probe_store(store),
        not_yet=(StoreUnavailable, StoreRefused, StoreFull),
    )
