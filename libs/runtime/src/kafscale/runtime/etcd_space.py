"""How full etcd is, and which writes it may still take.

The law: a share of etcd's quota is reserved for heads, claims and leases. Beyond 60 % of the quota, services create no
group and no topic, and accept no offset with metadata. Beyond 75 %, existing groups commit no offset and accept no
member. Each limit is lifted 5 % lower. etcd itself does not enforce this: before 3.6 it counts only the direct puts of
a transaction, and the committer's are nested. Once etcd raises NOSPACE, no process can register any more.

The measure is the bytes in use: the quota limits etcd's file, but etcd reuses free pages before the file grows. Between
two reads of etcd's status, admitted bytes count as well, so a burst is stopped without waiting for the next read.

Some versions of etcd, the first of which is 3.5.28, give their status to the user root alone (etcd #21663). A service
with a user of its own then admits everything, and only etcd's own quota is a limit. The service says so in its log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Final

import grpc
import structlog
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient, EtcdError, EtcdRejected, EtcdStatus

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
REOPEN_LOWER: Final = 0.05
COST_FACTOR: Final = 2
"""At most this many bytes of etcd's database per byte of a key and its value: pages are not full."""
KEY_COST_BYTES: Final = 256
NOSPACE: Final = "NOSPACE"


class Use(Enum):
    """The purpose of a write. The value is the share of the quota beyond which it is refused."""

    NEW = 0.60  # a new group or topic, metadata of an offset
    KNOWN = 0.75  # offsets and members of existing groups


@dataclass(slots=True)
class _Gate:
    share: float
    shut: bool = False

    def looked(self, share: float) -> None:
        self.shut = share >= (self.share - REOPEN_LOWER if self.shut else self.share)


class EtcdSpace:
    """`run` it in a task; `admits` decides by the last status of etcd."""

    def __init__(self, etcd: EtcdClient, quota_bytes: int) -> None:
        """`quota_bytes` applies if etcd does not report its quota."""
        self._etcd = etcd
        self._gates = {use: _Gate(use.value) for use in Use}
        self._let_in_bytes = 0
        self._unread = False
        self._is_blind = False
        self.quota_bytes = quota_bytes
        self.file_bytes = 0
        self.used_bytes = 0
        self.is_full = False
        """etcd has raised NOSPACE: it accepts no writes until the alarm is cleared."""
        self.refusals = 0

    def watch(self, metrics: Metrics) -> None:
        metrics.watch("etcd_quota_bytes", lambda: self.quota_bytes)
        metrics.watch("etcd_file_bytes", lambda: self.file_bytes)
        metrics.watch("etcd_used_bytes", lambda: self.used_bytes)
        metrics.watch("etcd_full", lambda: int(self.is_full))
        metrics.watch("etcd_space_refusals_total", lambda: self.refusals)

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Reads etcd's status. While etcd does not answer, the last status holds, plus all bytes admitted since."""
        let_in_bytes = self._let_in_bytes
        try:
            status = await self._etcd.status()
        except EtcdError as error:
            if not self._unread:
                log.warning("etcd status unavailable", why=str(error))
            self._unread, self._is_blind = True, is_forbidden(error)
            return
        self._unread = self._is_blind = False
        self._let_in_bytes -= let_in_bytes  # the answer may lack what was admitted during the call
        self.looked(status)

    def looked(self, status: EtcdStatus) -> None:
        self.quota_bytes = status.quota_bytes or self.quota_bytes
        self.file_bytes, self.used_bytes = status.db_bytes, status.db_bytes_in_use
        full = any(NOSPACE in error for error in status.errors)
        if full and not self.is_full:
            log.error("etcd full, writes refused", file_bytes=self.file_bytes, do="kafscale etcd-repair")
        self.is_full = full
        for use, gate in self._gates.items():
            before = gate.shut
            gate.looked(self.used_bytes / self.quota_bytes)
            if gate.shut is not before:
                log.warning(
                    "etcd space low" if gate.shut else "etcd space recovered",
                    refused=use.name.lower(),
                    used_bytes=self.used_bytes,
                    quota_bytes=self.quota_bytes,
                )

    def admits(self, use: Use, size: int, keys: int = 1) -> bool:
        """Whether `size` bytes in `keys` keys may be written. Admitted bytes count as written."""
        if self._is_blind:
            return True
        cost = size * COST_FACTOR + keys * KEY_COST_BYTES
        expected = self.used_bytes + self._let_in_bytes + cost
        if self.is_full or self._gates[use].shut or expected > use.value * self.quota_bytes:
            self.refusals += 1
            return False
        self._let_in_bytes += cost
        return True


def is_forbidden(error: EtcdError) -> bool:
    return isinstance(error, EtcdRejected) and error.code is grpc.StatusCode.PERMISSION_DENIED
