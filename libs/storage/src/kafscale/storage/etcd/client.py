"""A thin asyncio client for etcd v3, on grpc.aio and a proto file with etcd's public field numbers.

Laws: a request that writes is sent once, and the caller learns whether its outcome is known. Reads are linearizable and
may move to another endpoint. Watches resume. Retries of writes, serializable reads, locks and elections would break
these laws, so the client has none of them. `docs/adr/0002-own-etcd-client.md` says why no library fits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc
import grpc.aio
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd import pool as rpc
from kafscale.storage.etcd.errors import (
    EtcdError,
    EtcdRejected,
    EtcdUnknown,
    UnknownKind,
    WatchCompacted,
)
from kafscale.storage.etcd.ops import (
    Compare,
    Delete,
    DeleteResult,
    EventKind,
    KeyValue,
    Op,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
    WatchEvent,
    decode_range,
    decode_txn,
    encode_txn,
)
from kafscale.storage.etcd.transport import Access, BadEndpoint, EtcdTls
from kafscale.storage.etcd.watch import Watch
from kafscale.storage.keys import prefix_end

__all__ = [
    "BadEndpoint",
    "Compare",
    "Delete",
    "DeleteResult",
    "EtcdClient",
    "EtcdError",
    "EtcdRejected",
    "EtcdStatus",
    "EtcdTls",
    "EtcdUnknown",
    "EventKind",
    "KeyValue",
    "Op",
    "Put",
    "PutResult",
    "Range",
    "RangeResult",
    "Txn",
    "TxnResult",
    "UnknownKind",
    "Watch",
    "WatchBatch",
    "WatchCompacted",
    "WatchEvent",
]

TIMEOUT_S = 3.0
SNAPSHOT_IDLE_S = 60.0
"""etcd copies its database before the first piece."""
PAGE_KEYS = 1_000
"""Keys per request of `prefix`: heads are 2 KB, so a page is about 2 MB."""
PAGINGS_MAX = 5
"""Attempts to read a prefix whose revision is compacted while its pages are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdStatus:
    version: str
    db_bytes: int
    db_bytes_in_use: int
    quota_bytes: int  # 0: this version of etcd does not report it
    is_leader: bool
    errors: tuple[str, ...]


class EtcdClient:
    """Belongs to one event loop. Safe to use from any number of its tasks."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._pool = rpc.Pool(access)

    @classmethod
    def connect(
        cls,
        endpoints: Sequence[str],
        *,
        tls: EtcdTls | None = None,
        user: str | None = None,
        password: str | Path | None = None,
    ) -> Self:
        """Does no I/O; the first request connects. A password that is a path is read at each login.

        Raises `BadEndpoint`.
        """
        return cls(Access.parse(endpoints, tls=tls, user=user, password=password))

    async def close(self) -> None:
        await self._pool.close()

    @property
    def fell(self) -> tuple[int, int] | None:
        """A revision of this client's answers, and a lower one of an answer to a later request: etcd went back."""
        return self._pool.revisions.fell

    def forget_revisions(self) -> None:
        """From now on only the answers to come are compared."""
        self._pool.revisions = rpc.Revisions()

    # -- reads: linearizable, tried at every endpoint until the deadline -------------------------

    async def range(
        self,
        key: bytes,
        *,
        range_end: bytes | None = None,
        limit: int = 0,
        keys_only: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> RangeResult:
        request = pb.RangeRequest(key=key, range_end=range_end or b"", limit=limit, keys_only=keys_only)
        return await self._range(request, timeout_s)

    async def get(self, key: bytes, *, timeout_s: float = TIMEOUT_S) -> KeyValue | None:
        found = await self.range(key, timeout_s=timeout_s)
        return found.kvs[0] if found.kvs else None

    async def prefix(
        self,
        prefix: bytes,
        *,
        keys_only: bool = False,
        page_keys: int = PAGE_KEYS,
        timeout_s: float = TIMEOUT_S,
    ) -> RangeResult:
        """Every key under the prefix, read in pages at one revision. `timeout_s` is per page.

        `page_keys` times the largest value must fit into a message (64 MiB), or the read never succeeds.
        """
        for _ in range(PAGINGS_MAX - 1):
            try:
                return await self._pages(prefix, keys_only, page_keys, timeout_s)
            except EtcdRejected as rejected:
                if rejected.code is not grpc.StatusCode.OUT_OF_RANGE:
                    raise
        return await self._pages(prefix, keys_only, page_keys, timeout_s)

    async def each(self, prefix: bytes, *, page_keys: int) -> AsyncIterator[KeyValue]:
        """As `prefix`, in bounded memory: each page is read when it is needed, at a revision of its own."""
        start, end, more = prefix, prefix_end(prefix), True
        while more:
            page = await self.range(start, range_end=end, limit=page_keys)
            for kv in page.kvs:
                yield kv
            more, start = page.more, page.kvs[-1].key + b"\0" if page.kvs else end

    async def ranges(
        self, reads: Sequence[Range], *, timeout_s: float = TIMEOUT_S
    ) -> tuple[RangeResult, ...]:
        """Several reads in one request, all at one revision; at most 128, etcd's default limit."""
        request = encode_txn(Txn(success=tuple(reads)))
        answer = await self._pool.reading(rpc.TXN, request, timeout_s)
        revision = answer.header.revision
        return tuple(decode_range(op.response_range, revision) for op in answer.responses)

    def watch(self, key: bytes, *, range_end: bytes | None = None, start_revision: int) -> Watch:
        """Events from `start_revision` on. The watch resumes itself and raises `WatchCompacted`. Close it after use."""
        return Watch(self._pool, key=key, range_end=range_end, start_revision=start_revision)

    # -- writes: sent once -----------------------------------------------------------------------

    async def txn(self, txn: Txn, *, timeout_s: float = TIMEOUT_S) -> TxnResult:
        """Sent once. After `EtcdUnknown`, send the same `Txn` again to learn what happened."""
        answer = await self._pool.once(rpc.TXN, encode_txn(txn), timeout_s)
        return decode_txn(answer, answer.header.revision)

    async def put(
        self, key: bytes, value: bytes, *, lease: int = 0, timeout_s: float = TIMEOUT_S
    ) -> PutResult:
        request = pb.PutRequest(key=key, value=value, lease=lease)
        answer = await self._pool.once(rpc.PUT, request, timeout_s)
        return PutResult(answer.header.revision)

    async def delete(
        self, key: bytes, *, range_end: bytes | None = None, timeout_s: float = TIMEOUT_S
    ) -> DeleteResult:
        request = pb.DeleteRangeRequest(key=key, range_end=range_end or b"")
        answer = await self._pool.once(rpc.DELETE_RANGE, request, timeout_s)
        return DeleteResult(answer.deleted, answer.header.revision)

    # -- leases ----------------------------------------------------------------------------------

    async def lease_grant(self, ttl_s: int, *, timeout_s: float = TIMEOUT_S) -> int:
        """The id of a new lease. After `EtcdUnknown` an unused lease may exist; it expires."""
        answer = await self._pool.once(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=ttl_s), timeout_s)
        return answer.ID

    async def lease_revoke(self, lease: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Revokes the lease and deletes its keys. Revoking a lease that does not exist is not an error."""
        try:
            await self._pool.once(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease), timeout_s)
        except EtcdRejected as rejected:
            if not rejected.is_lease_gone:
                raise

    async def lease_remaining_s(self, lease: int, *, timeout_s: float = TIMEOUT_S) -> int:
        """Whole seconds until expiry; -1 if the lease does not exist."""
        answer = await self._pool.reading(rpc.LEASE_TTL, pb.LeaseTimeToLiveRequest(ID=lease), timeout_s)
        return answer.TTL

    # -- operations ------------------------------------------------------------------------------

    async def status(self, *, timeout_s: float = TIMEOUT_S) -> EtcdStatus:
        """The status of the member that answers."""
        answer = await self._pool.reading(rpc.STATUS, pb.StatusRequest(), timeout_s)
        return EtcdStatus(
            version=answer.version,
            db_bytes=answer.dbSize,
            db_bytes_in_use=answer.dbSizeInUse,
            quota_bytes=answer.dbSizeQuota,
            is_leader=answer.leader == answer.header.member_id,
            errors=tuple(answer.errors),
        )

    async def compact(self, revision: int, *, timeout_s: float = TIMEOUT_S) -> None:
        await self._pool.once(rpc.COMPACT, pb.CompactionRequest(revision=revision, physical=True), timeout_s)

    async def defragment(self, *, timeout_s: float = 30.0) -> None:
        """Defragments the member that answers; it serves no requests meanwhile."""
        await self._pool.once(rpc.DEFRAGMENT, pb.DefragmentRequest(), timeout_s)

    async def snapshot(self, *, idle_s: float = SNAPSHOT_IDLE_S) -> AsyncIterator[bytes]:
        """The database of the member that answers: its file, then the SHA-256 of it; in pieces of 32 KiB.

        With users in etcd only root may read it. A stream that breaks is not resumed.
        """
        async for answer in self._pool.answers(rpc.SNAPSHOT, pb.SnapshotRequest(), idle_s):
            yield answer.blob

    async def disarm_alarms(self, *, timeout_s: float = TIMEOUT_S) -> int:
        """Clears all alarms, such as NOSPACE, and returns their number. Make room first."""
        raised = await self._pool.reading(rpc.ALARM, pb.AlarmRequest(action=pb.AlarmRequest.GET), timeout_s)
        for alarm in raised.alarms:
            request = pb.AlarmRequest(
                action=pb.AlarmRequest.DEACTIVATE, memberID=alarm.memberID, alarm=alarm.alarm
            )
            await self._pool.once(rpc.ALARM, request, timeout_s)
        return len(raised.alarms)

    # --------------------------------------------------------------------------------------------

    async def _range(self, request: pb.RangeRequest, timeout_s: float) -> RangeResult:
        answer = await self._pool.reading(rpc.RANGE, request, timeout_s)
        return decode_range(answer, answer.header.revision)

    async def _pages(self, prefix: bytes, keys_only: bool, page_keys: int, timeout_s: float) -> RangeResult:
        end = prefix_end(prefix)
        request = pb.RangeRequest(key=prefix, range_end=end, limit=page_keys, keys_only=keys_only)
        page = await self._range(request, timeout_s)
        revision, kvs = page.revision, list(page.kvs)
        while page.more:
            request.key, request.revision = kvs[-1].key + b"\0", revision
            page = await self._range(request, timeout_s)
            kvs.extend(page.kvs)
        return RangeResult(tuple(kvs), revision, False, len(kvs))
