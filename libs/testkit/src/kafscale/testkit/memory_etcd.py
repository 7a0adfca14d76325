"""etcd in memory, for tests that need thousands of its states. Each request is one atomic step, as in real etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from kafscale.storage.etcd.client import (
    Compare,
    Delete,
    DeleteResult,
    KeyValue,
    Op,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)
from kafscale.storage.etcd.ops import PutResult, Result
from kafscale.storage.keys import prefix_end

OPERATIONS_MAX = 128


@dataclass(slots=True)
class MemoryEtcd:
    revision: int = 1
    values: dict[bytes, KeyValue] = field(default_factory=dict)
    fell: tuple[int, int] | None = None
    """A test may put back an older state without a loss: no answer says that etcd went back."""

    def forget_revisions(self) -> None:
        pass

    async def range(self, key: bytes, *, range_end: bytes | None = None, **_how: object) -> RangeResult:
        return self._range(Range(key, range_end))

    async def get(self, key: bytes, **_how: object) -> KeyValue | None:
        return self.values.get(key)

    async def prefix(self, prefix: bytes, **_how: object) -> RangeResult:
        return self._range(Range(prefix, prefix_end(prefix)))

    async def each(self, prefix: bytes, **_how: object) -> AsyncIterator[KeyValue]:
        for kv in self._range(Range(prefix, prefix_end(prefix))).kvs:
            yield kv

    async def ranges(self, reads: Sequence[Range]) -> tuple[RangeResult, ...]:
        assert len(reads) <= OPERATIONS_MAX
        return tuple(self._range(read) for read in reads)

    async def put(self, key: bytes, value: bytes) -> PutResult:
        await self.txn(Txn(success=(Put(key, value),)))
        return PutResult(self.revision)

    async def delete(self, key: bytes, *, range_end: bytes | None = None) -> DeleteResult:
        answer = await self.txn(Txn(success=(Delete(key, range_end),)))
        (deleted,) = answer.responses
        assert isinstance(deleted, DeleteResult)
        return deleted

    async def txn(self, txn: Txn) -> TxnResult:
        """Nested compares see the state before the whole request; no key is written twice in one."""
        assert len(txn.success) < OPERATIONS_MAX
        self.revision += 1
        return self._execute(txn, dict(self.values), set())

    def _execute(self, txn: Txn, before: dict[bytes, KeyValue], written: set[bytes]) -> TxnResult:
        holds = all(_holds(compare, before.get(compare.key)) for compare in txn.compare)
        ops = txn.success if holds else txn.failure
        return TxnResult(holds, self.revision, tuple(self._do(op, before, written) for op in ops))

    def _do(self, op: Op, before: dict[bytes, KeyValue], written: set[bytes]) -> Result:
        match op:
            case Range():
                return self._range(op)
            case Txn():
                return self._execute(op, before, written)
            case Put():
                assert op.key not in written, "etcd refuses a key that is put twice"
                written.add(op.key)
                old = self.values.get(op.key)
                created, version = (old.create_revision, old.version + 1) if old else (self.revision, 1)
                self.values[op.key] = KeyValue(op.key, op.value, created, self.revision, version, 0)
                return PutResult(self.revision)
            case Delete():
                found = self._range(Range(op.key, op.range_end)).kvs
                for kv in found:
                    del self.values[kv.key]
                return DeleteResult(len(found), self.revision)

    def _range(self, read: Range) -> RangeResult:
        end = read.range_end if read.range_end is not None else read.key + b"\0"
        kvs = tuple(kv for key, kv in sorted(self.values.items()) if read.key <= key < end)
        return RangeResult(kvs, self.revision, count=len(kvs))


def _holds(compare: Compare, kv: KeyValue | None) -> bool:
    found = {
        "mod": kv.mod_revision if kv else 0,
        "create": kv.create_revision if kv else 0,
        "version": kv.version if kv else 0,
    }
    value = found[compare.target]
    if compare.op in ("<", ">"):
        assert isinstance(compare.value, int), compare
        return value < compare.value if compare.op == "<" else value > compare.value
    assert compare.op == "=", compare
    return value == compare.value
