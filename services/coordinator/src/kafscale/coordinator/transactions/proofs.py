"""Proofs that a slot is still ours: linearizable reads of its claim.

The laws:

- A read counts for a request only if it began after the request came. A read that is under way proves nothing to those
  that come meanwhile: its result may be from before they came.
- One read of a slot is under way at a time, and everybody who came before it began shares it. So the number of reads
  does not grow with the number of requests.
- A clock proves nothing. A process that was paused may have lost the slot and still believe in its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from kafscale.coordinator.slots import Held
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)


class Proofs:
    """`fenced` is called with a claim that is lost. `begin` owns the tasks of the reads."""

    def __init__(
        self,
        etcd: EtcdClient,
        keyspace: Keyspace,
        fenced: Callable[[Held], None],
        begin: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._etcd = etcd
        self._keyspace = keyspace
        self._fenced = fenced
        self._begin = begin
        self._next: dict[Held, asyncio.Future[ErrorCode]] = {}
        self._reading: set[Held] = set()

    async def proven(self, held: Held) -> ErrorCode:
        """NONE: the claim held at a time after this call. NOT_COORDINATOR: it is lost. COORDINATOR_NOT_AVAILABLE: etcd
        did not say."""
        proof = self._next.get(held)
        if proof is None:
            proof = self._next[held] = asyncio.get_running_loop().create_future()
            if held not in self._reading:
                self._reading.add(held)
                self._begin(self._read_all(held))
        return await asyncio.shield(proof)  # one who leaves takes the proof from nobody

    async def _read_all(self, held: Held) -> None:
        """One read after another, as long as somebody waits."""
        proof: asyncio.Future[ErrorCode] | None = None
        try:
            while (proof := self._next.pop(held, None)) is not None:
                proof.set_result(await self._read(held))
        finally:
            self._reading.discard(held)
            for unread in (proof, self._next.pop(held, None)):
                if unread is not None:
                    unread.cancel()  # this task was cancelled: the process ends

    async def _read(self, held: Held) -> ErrorCode:
        try:
            kv = await self._etcd.get(self._keyspace.slot_claim(held.slot_id))
        except EtcdError as error:
            log.info("claim of slot not proven", slot=held.slot_id, why=str(error))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if kv is None or kv.mod_revision != held.revision:
            self._fenced(held)
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE
