"""The models behave as the real adapters do, or what was proved over them says nothing.

The same requests go to the model and to the directory store, or to the model and a real etcd; the
outcomes must agree. Etags are compared by identity: equal where the other side's are equal.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.storage.etcd.client import Compare, Delete, EtcdClient, Put, Txn
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import IfAbsent, IfMatch, MemoryStore, ObjectStore, PreconditionFailed
from kafscale.storage.objects.directory import DirectoryStore
from kafscale.testkit.models import ModelEtcd, ModelS3

KEYS = ("a/1", "a/2")
STALE = "no-such-etag"

moves = st.lists(
    st.tuples(
        st.sampled_from(("put", "create", "replace", "replace stale", "delete", "delete stale", "remove")),
        st.sampled_from(KEYS),
        st.binary(min_size=1, max_size=2),
    ),
    max_size=12,
)


async def real_put(
    store: ObjectStore, key: str, body: bytes, condition: IfAbsent | IfMatch | None
) -> str | None:
    try:
        return await store.put(key, [body], condition=condition, metadata={"kfs-epoch": "1"})
    except PreconditionFailed:
        return None


async def real_delete(store: ObjectStore, key: str, etag: str | None) -> bool:
    try:
        return await store.delete(key, if_match=etag)
    except PreconditionFailed:
        return False


class Pair:
    """A store and its model, fed alike."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.model = ModelS3()

    async def _real_etag(self, key: str) -> str:
        info = await self.store.head(key)
        return STALE if info is None else info.etag

    def _model_etag(self, key: str) -> str:
        info = self.model.head(key)
        return STALE if info is None else info.etag

    async def apply(self, move: str, key: str, body: bytes) -> None:
        if move.startswith(("delete", "remove")):
            real = model = None
            if move == "delete":
                real, model = await self._real_etag(key), self._model_etag(key)
            elif move == "delete stale":
                real = model = STALE
            assert await real_delete(self.store, key, real) == self.model.delete(key, model)
            return
        real_if: IfAbsent | IfMatch | None = IfAbsent() if move == "create" else None
        model_if = real_if
        if move.startswith("replace"):
            stale = move == "replace stale"
            real_if = IfMatch(STALE if stale else await self._real_etag(key))
            model_if = IfMatch(STALE if stale else self._model_etag(key))
        real = await real_put(self.store, key, body, real_if)
        model = self.model.put(key, [body], model_if, {"kfs-epoch": "1"})
        assert (real is None) == (model is None)

    async def check(self) -> None:
        for key in KEYS:
            info, there = await self.store.head(key), self.model.head(key)
            assert (info is None) == (there is None)
            if info is not None and there is not None:
                assert (info.size, dict(info.metadata)) == (there.size, dict(there.metadata))
                assert await self.store.get(key, if_match=info.etag) == self.model.get(key, there.etag)


async def run_moves(store: ObjectStore, sequence: list[tuple[str, str, bytes]]) -> None:
    pair = Pair(store)
    for move in sequence:
        await pair.apply(*move)
        await pair.check()
    await store.close()


@given(moves)
@settings(max_examples=80)
async def test_the_model_of_s3_answers_as_the_memory_store(sequence: list[tuple[str, str, bytes]]) -> None:
    await run_moves(MemoryStore(), sequence)


@given(moves)
@settings(max_examples=15)
async def test_the_model_of_s3_answers_as_the_directory_store(sequence: list[tuple[str, str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await run_moves(DirectoryStore(Path(folder)), sequence)


@pytest.mark.parametrize("seed", range(6))
async def test_the_model_of_etcd_answers_as_etcd(etcd: EtcdClient, keyspace: Keyspace, seed: int) -> None:
    """Compare-and-swap over two keys, with right and wrong revisions, and deletes."""
    model = ModelEtcd()
    root = keyspace.root()
    keys = (root + b"1", root + b"2")
    revisions: dict[bytes, tuple[int, int]] = dict.fromkeys(keys, (0, 0))  # real, model
    for step in range(30):
        draw = (seed * 7_919 + step * 104_729) % 97
        key, other = keys[draw % 2], keys[1 - draw % 2]
        behind = 1 if draw % 5 == 0 else 0
        real_at, model_at = revisions[key][0] - behind, revisions[key][1] - behind
        deleting = draw % 7 == 0
        ops: tuple[Put | Delete, ...] = (Delete(key),) if deleting else (Put(key, b"v"), Put(other, b"w"))
        done = await etcd.txn(Txn(compare=(Compare(key, "mod", "=", real_at),), success=ops))
        model_done = model.txn(
            {key: model_at}, {} if deleting else {key: b"v", other: b"w"}, [key] if deleting else []
        )
        assert done.succeeded == (model_done is not None)
        for touched in keys:
            found = await etcd.range(touched)
            real = found.kvs[0].mod_revision if found.kvs else 0
            assert (real == 0) == (model.mod_revision(touched) == 0)
            revisions[touched] = (real, model.mod_revision(touched))
