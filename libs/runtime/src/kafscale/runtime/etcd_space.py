"""How full etcd is, and who may still put something new into it.

The law: heads, claims and leases keep a share of etcd's quota that nothing else may use. Past 60 % of it no
group and no topic is made, and no offset comes with metadata; past 75 % groups that are there commit no offset
and take no member either. Each begins again 5 % lower. etcd itself does not hold this line: before 3.6 it counts
only what a transaction puts by itself, and ours are nested (committer.py); and once it raises NOSPACE nobody can
register any more.

What counts is what is in use: the quota is on etcd's file, but free pages are written again before the file
grows. Between two looks at etcd what was let in is counted as well, so a flood is stopped within a look.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Final

import structlog
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient, EtcdError, EtcdStatus

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 1.0
REOPEN_LOWER: Final = 0.05
COST_FACTOR: Final = 2
"""Bytes of etcd's database for each byte of a key and its value, or fewer: pages are not full."""
KEY_COST_BYTES: Final = 256
NOSPACE: Final = "NOSPACE"


class Use(Enum):
    """What room is asked for. The value is the share of the quota past which it is refused."""

    NEW = 0.60  # a group or a topic that is not there yet, metadata of an offset
    KNOWN = 0.75  # offsets and members of groups that are there


@dataclass(slots=True)
class _Gate:
    share: float
    shut: bool = False

    def looked(self, share: float) -> None:
        self.shut = share >= (self.share - REOPEN_LOWER if self.shut else self.share)


class EtcdSpace:
    """`run` it in a task; `admits` answers from the last look."""

    def __init__(self, etcd: EtcdClient, quota_bytes: int) -> None:
        """`quota_bytes` holds where etcd does not say its quota."""
        self._etcd = etcd
        self._gates = {use: _Gate(use.value) for use in Use}
        self._let_in_bytes = 0
        self._unread = False
        self.quota_bytes = quota_bytes
        self.file_bytes = 0
        self.used_bytes = 0
        self.is_full = False
        """etcd has raised NOSPACE: it takes no writes until the alarm is cleared."""
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
        """While etcd does not answer the last look holds, with all that was let in since."""
        let_in_bytes = self._let_in_bytes
        try:
            status = await self._etcd.status()
        except EtcdError as error:
            if not self._unread:
                log.warning("how full etcd is cannot be read", why=str(error))
            self._unread = True
            return
        self._unread = False
        self._let_in_bytes -= let_in_bytes  # what came during the look may not be in its answer
        self.looked(status)

    def looked(self, status: EtcdStatus) -> None:
        self.quota_bytes = status.quota_bytes or self.quota_bytes
        self.file_bytes, self.used_bytes = status.db_bytes, status.db_bytes_in_use
        full = any(NOSPACE in error for error in status.errors)
        if full and not self.is_full:
            log.error(
                "etcd is full and takes no writes", file_bytes=self.file_bytes, do="kafscale etcd-repair"
            )
        self.is_full = full
        for use, gate in self._gates.items():
            before = gate.shut
            gate.looked(self.used_bytes / self.quota_bytes)
            if gate.shut is not before:
                log.warning(
                    "etcd is too full" if gate.shut else "etcd has room again",
                    refused=use.name.lower(),
                    used_bytes=self.used_bytes,
                    quota_bytes=self.quota_bytes,
                )

    def admits(self, use: Use, size: int, keys: int = 1) -> bool:
        """Whether so many bytes in so many keys may be written; they then count as written."""
        cost = size * COST_FACTOR + keys * KEY_COST_BYTES
        expected = self.used_bytes + self._let_in_bytes + cost
        if self.is_full or self._gates[use].shut or expected > use.value * self.quota_bytes:
            self.refusals += 1
            return False
        self._let_in_bytes += cost
        return True
