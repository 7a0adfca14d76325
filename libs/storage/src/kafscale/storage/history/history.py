"""The history of etcd as one process knows it: whether it may claim and delete, and the witnesses that prove it.

The laws. A process deletes an object, or changes an epoch, only in a history that it has verified: the newest witness
of the bucket was read first, and then found in etcd. Each such transaction compares that etcd holds a witness that was
verified (`fence`), so it fails in every older history. If etcd went back, the process stops to do both until a later
look finds the witness again, which an etcd with the wrong address makes possible, or until it ends.

Witnesses are a minute apart. What etcd loses between two of them, processes show that remember more than etcd
(`suspect`): a head that fell, a revision that fell. That proof is put into the bucket, so that all processes stop, also
those that start later. Only `begin_anew`, of a roll-forward, removes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

from kafscale.storage.etcd.client import (
    Compare,
    Delete,
    EtcdClient,
    EtcdError,
    KeyValue,
    Put,
    Range,
    RangeResult,
    Txn,
)
from kafscale.storage.history.witness import (
    KEYS_KEPT,
    NONCE_BYTES,
    OBJECTS_KEPT,
    STOPPED,
    WentBack,
    Witness,
    compared,
    decode_made_ms,
    encode_made,
    first_of,
    history_prefix,
    outdated,
    parse_witness,
    parse_witness_key,
    witness_key,
    witnesses_prefix,
)
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.storage.objects import (
    Doomed,
    IfAbsent,
    ObjectNotFound,
    ObjectStore,
    PreconditionFailed,
    StoreError,
)
from kafscale.storage.system import monotonic_s, random_bytes, wall_ms

log = logging.getLogger(__name__)

ADVANCE_EVERY_MS: Final = 60_000
LOOK_EVERY_S: Final = 10.0
"""A read of a few keys of etcd. The bucket is listed only once a minute, by one process, and before deletions."""
RETRY_S: Final = 1.0
STORE_TIMEOUT_S: Final = 20.0
SAY_AGAIN_S: Final = 3_600.0


class History:
    """Of one process. Without `run` it is verified when it is asked, and makes no witnesses but the first."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        store: ObjectStore,
        *,
        wall_ms: Callable[[], int] = wall_ms,
        tidies: bool = True,
    ) -> None:
        """`tidies`: it may delete old witnesses of the bucket."""
        self._etcd = etcd
        self._keys = keys
        self._store = store
        self._wall_ms = wall_ms
        self._tidies = tidies
        self._verified: Witness | None = None
        self._verified_key = b""
        self._verified_s = float("-inf")
        self._stopped: str | None = None
        self._said_s = float("-inf")
        self._suspicion: str | None = None
        self._generation: int | None = None  # in which this process began
        self._verifying = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._judged = asyncio.Event()
        self._good = asyncio.Event()

    # -- what others ask ---------------------------------------------------------------------------

    @property
    def stopped(self) -> str | None:
        """Why nothing may be claimed or deleted. None: nothing is known against it."""
        return self._stopped or self._suspicion

    @property
    def fence(self) -> Compare | None:
        """For each transaction that begins or ends a log, or an epoch of it. None: it must not be sent."""
        if self._verified is None or self.stopped is not None or self._etcd.fell is not None:
            return None
        return Compare(self._verified_key, "version", ">", 0)

    async def fenced(self) -> Compare:
        """`fence`, verified if it has to be. Raises WentBack, EtcdError and StoreError."""
        fence = self.fence
        if fence is None:
            await self.verify()
            fence = self.fence
        if fence is None:
            raise WentBack(self.stopped or "its revision fell")
        return fence

    async def until_good(self) -> None:
        """Waits for as long as there is no fence. `run` must run."""
        while self.fence is None:
            self._good.clear()
            self._wanted.set()
            await self._good.wait()

    async def judged(self) -> None:
        """Waits for the first verdict of `run`."""
        await self._judged.wait()

    def missed(self) -> None:
        """A transaction failed because etcd does not hold the fence: it is too old, or etcd went back."""
        self._verified = None
        self._wanted.set()

    def suspect(self, why: str) -> None:
        """Proof of this process that etcd went back. It must be certain: only a roll-forward lets processes go on."""
        if self._suspicion is None:
            self._suspicion = why
            self._say(why)
        self._wanted.set()

    async def proven(self, reads: Sequence[Range]) -> tuple[RangeResult, ...]:
        """These reads at one revision of an etcd that holds the fence; 127 at most. Raises as `fenced`."""
        for _ in range(2):  # the first fence may be too old
            fence = await self.fenced()
            witness, *found = await self._etcd.ranges([Range(fence.key, keys_only=True), *reads])
            if witness.kvs:
                return tuple(found)
            self.missed()
        raise WentBack("it does not hold a witness that it held a moment ago")

    async def verify(self) -> Witness:
        """The newest witness of etcd; the bucket has it too. The first process of a cluster makes the first one.

        Raises WentBack, EtcdError, StoreError and TimeoutError.
        """
        async with self._verifying:
            began_s = monotonic_s()
            try:
                newest = await self._verify()
            except WentBack as back:
                self._verified, self._stopped = None, back.why
                self._say(back.why)
                self._judged.set()
                raise
            if self._stopped is not None:
                log.warning("etcd has the bucket's history again: deletions and claims continue")
            self._found(newest)
            self._stopped, self._said_s = None, float("-inf")
            self._verified_s = began_s
            self._judged.set()
            self._good.set()
            return newest

    async def confirm(self, decided_s: float) -> None:
        """Before what was decided at that time (monotonic) is carried out: the history was verified since, or is now.

        What was dead then stays dead, whatever becomes of etcd later. Raises as `verify`.
        """
        if self.fence is None or self._verified_s <= decided_s:
            await self.verify()

    async def each(self, prefix: bytes, *, page_keys: int) -> AsyncIterator[KeyValue]:
        """As etcd's `each`, with the proof for each page. Raises as `fenced`."""
        start, end, more = prefix, prefix_end(prefix), True
        while more:
            (page,) = await self.proven([Range(start, end, limit=page_keys)])
            for kv in page.kvs:
                yield kv
            more, start = page.more, page.kvs[-1].key + b"\0" if page.kvs else end

    async def trouble(self) -> str | None:
        """What `verify` would raise, without a change of anything; None: nothing. Raises EtcdError and StoreError."""
        try:
            await self._compared()
        except WentBack as back:
            return back.why
        return None

    # -- looking -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keeps the fence young, and makes a witness a minute while etcd changes. Until cancelled."""
        while True:
            self._wanted.clear()
            pause_s = LOOK_EVERY_S
            try:
                await self.look()
            except (EtcdError, StoreError, TimeoutError) as error:
                log.warning("history of etcd not verified: %r", error)
                pause_s = RETRY_S if self.fence is None else LOOK_EVERY_S
            except WentBack as back:
                self._say(back.why)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()

    async def look(self) -> None:
        """What `run` does once. Raises as `verify`."""
        mine = self._verified
        if mine is None or self.stopped is not None or self._etcd.fell is not None:
            await self.verify()
            return
        known, revision = await self._known()
        newest = max(known, default=None)
        if mine not in known or newest is None or newest.generation != mine.generation:
            await self.verify()
            return
        self._found(newest)  # it is in one etcd with the one that was verified
        made_ms, at = known[newest]
        if revision > at and abs(self._wall_ms() - made_ms) >= ADVANCE_EVERY_MS:
            await self.advance()

    async def advance(self) -> Witness:
        """Makes a witness: what etcd holds now is proven by it. Raises as `verify`."""
        before = await self.verify()
        made = before.next(random_bytes(NONCE_BYTES))
        known, _ = await self._known()
        old = outdated(known, KEYS_KEPT - 1)
        txn = Txn(
            compare=(Compare(witness_key(self._keys, before), "version", ">", 0),),
            success=(
                Put(witness_key(self._keys, made), encode_made(self._wall_ms())),
                *(Delete(witness_key(self._keys, each)) for each in old),
            ),
        )
        if not (await self._etcd.txn(txn)).succeeded:
            return await self.verify()
        await self._put(str(made))
        self._found(made)
        await self._prune()
        return made

    async def begin_anew(self) -> Witness:
        """A new generation, for an etcd that a roll-forward has brought up to the bucket. No process may run.

        If it ends early, the history is refused as before. Raises EtcdError and StoreError.
        """
        stored, _ = await self._stored()
        known, _ = await self._known()
        generation = 1 + max((each.generation for each in (*stored, *known)), default=0)
        made = first_of(generation, random_bytes(NONCE_BYTES))
        txn = Txn(
            success=(
                Put(witness_key(self._keys, made), encode_made(self._wall_ms())),
                *(Delete(witness_key(self._keys, each)) for each in known),
            )
        )
        await self._etcd.txn(txn)
        await self._put(str(made))
        await self._store.delete(self._name(STOPPED))
        await self._prune()
        self._verified = self._stopped = self._suspicion = self._generation = None
        self._etcd.forget_revisions()
        return await self.verify()

    # -- etcd and the bucket -----------------------------------------------------------------------

    async def _verify(self) -> Witness:
        newest, stored = await self._compared()
        if newest is not None:
            self._same_generation(newest)
        if self._etcd.fell is not None:
            known, answered = self._etcd.fell
            self.suspect(f"it answered with revision {answered} after revision {known}")
        if self._suspicion is not None:
            await self._put(STOPPED, self._suspicion)
            raise WentBack(self._suspicion)
        if newest is None:
            newest = first_of(0, random_bytes(NONCE_BYTES))
            await self._etcd.put(witness_key(self._keys, newest), encode_made(self._wall_ms()))
        if newest not in stored:
            await self._put(str(newest))
        self._generation = newest.generation
        return newest

    async def _compared(self) -> tuple[Witness | None, set[Witness]]:
        """The newest witness of etcd, and those of the bucket, which is read first: etcd is ahead of it."""
        stored, stopped = await self._stored()
        known, _ = await self._known()
        try:
            newest = compared(known.keys(), stored)
        except WentBack:
            self._etcd.forget_revisions()  # that they fell is explained
            raise
        if stopped:
            raise WentBack(await self._reason())
        return newest, stored

    def _found(self, witness: Witness) -> None:
        """Etcd holds it. Its key is made once: each commit compares it."""
        self._verified, self._verified_key = witness, witness_key(self._keys, witness)

    def _same_generation(self, newest: Witness) -> None:
        if self._generation not in (None, newest.generation):
            raise WentBack("a roll-forward has begun a new history since this process started; restart it")

    async def _known(self) -> tuple[dict[Witness, tuple[int, int]], int]:
        """Of etcd: each with the time at which it was made and its revision; and the revision of the read."""
        prefix = witnesses_prefix(self._keys)
        found = await self._etcd.range(prefix, range_end=prefix_end(prefix))
        known = {
            witness: (decode_made_ms(kv.value), kv.mod_revision)
            for kv in found.kvs
            if (witness := parse_witness_key(self._keys, kv.key)) is not None
        }
        return known, found.revision

    async def _stored(self) -> tuple[set[Witness], bool]:
        """Of the bucket; and whether a process has stopped the cluster."""
        prefix = history_prefix(self._keys)
        async with asyncio.timeout(STORE_TIMEOUT_S):
            names = [info.key.removeprefix(prefix) async for info in self._store.list(prefix)]
        return {witness for name in names if (witness := parse_witness(name)) is not None}, STOPPED in names

    async def _put(self, name: str, content: str = "") -> None:
        with suppress(PreconditionFailed):  # another process has put it
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await self._store.put(self._name(name), [content.encode()], condition=IfAbsent())

    async def _reason(self) -> str:
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                return (await self._store.get(self._name(STOPPED))).decode(errors="replace")
        except ObjectNotFound:
            return "a process had proof of it a moment ago"

    async def _prune(self) -> None:
        """Best effort: old witnesses prove nothing more, and cost nothing."""
        if not self._tidies:
            return
        with suppress(StoreError, TimeoutError):
            stored, _ = await self._stored()
            old = [Doomed(self._name(str(each))) for each in outdated(stored, OBJECTS_KEPT)]
            if old:
                async with asyncio.timeout(STORE_TIMEOUT_S):
                    await self._store.delete_many(old)

    def _name(self, name: str) -> str:
        return history_prefix(self._keys) + name

    def _say(self, why: str) -> None:
        if monotonic_s() - self._said_s >= SAY_AGAIN_S:
            self._said_s = monotonic_s()
            log.error("%s", WentBack(why))
