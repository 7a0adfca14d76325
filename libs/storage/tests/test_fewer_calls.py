"""An etcd that refuses or does not answer gets fewer calls, and not more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd import pool as pool_module
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind, WatchBatch, WatchCompacted
from kafscale.storage.etcd.pool import Method, Pool
from kafscale.storage.etcd.transport import Access
from kafscale.storage.views import COMPACTED_MAX_MS, WatchedRange

GET = Method("/etcdserverpb.KV/Range", pb.RangeResponse)


class _Away(Pool):
    """Refuses at once."""

    tries = 0

    async def once(self, method: Any, request: Any, timeout_s: float) -> Any:
        self.tries += 1
        raise EtcdUnknown(UnknownKind.UNAVAILABLE, "connection refused", "etcd")


async def test_a_read_asks_an_etcd_that_is_away_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        nonlocal now_s
        now_s += delay_s
        slept.append(delay_s)

    monkeypatch.setattr(pool_module, "monotonic_s", lambda: now_s)
    monkeypatch.setattr(pool_module, "asyncio", SimpleNamespace(sleep=sleep, Lock=asyncio.Lock))
    pool = _Away(Access.parse(["127.0.0.1:1"]))
    with pytest.raises(EtcdUnknown):
        await pool.reading(GET, pb.RangeRequest(), 5.0)
    assert 10 <= pool.tries <= 30
    assert slept[0] <= 0.05 < slept[4] <= 0.5
    assert 4.9 <= now_s <= 5, "it tries until its deadline"


class _Compacted(WatchedRange):
    reads = 0

    async def _read_copy(self) -> int:
        self.reads += 1
        return self.reads

    def _apply(self, batch: WatchBatch) -> None:
        raise AssertionError

    async def _follow(self, start_revision: int) -> None:
        if start_revision == 11:
            return  # a minute is over
        raise WatchCompacted(start_revision + 1)


async def test_a_history_that_is_compacted_time_and_again_is_read_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)
        if len(waits) == 12:
            raise asyncio.CancelledError

    monkeypatch.setattr("kafscale.storage.backoff.asyncio", SimpleNamespace(sleep=sleep))
    copy = _Compacted(EtcdClient.connect(["127.0.0.1:1"]), b"a", b"b", reconcile_s=60)
    with pytest.raises(asyncio.CancelledError):
        await copy.run()
    assert copy.resyncs == 12
    longest_s = COMPACTED_MAX_MS / 1000
    assert waits[0] <= 0.1 < waits[3] < waits[6]
    assert longest_s / 2 <= waits[8] <= longest_s
    assert waits[9] <= 0.1, "a watch that lasted ends it"
