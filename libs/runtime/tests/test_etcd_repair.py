"""The way out of NOSPACE, on a real etcd with a tiny quota."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.etcd_repair import StillFull, repair
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, Put, Txn
from kafscale.storage.keys import Keyspace, SlotId, TopicId
from kafscale.testkit.etcd import start_etcd

QUOTA = 16 << 20
VALUE = 256 << 10
KEYS = Keyspace()
TOPIC = TopicId(bytes(16))


@pytest_asyncio.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[tuple[EtcdProcess, EtcdClient]]:
    with start_etcd(tmp_path, quota_bytes=QUOTA) as server:
        client = EtcdClient.connect([server.endpoint])
        yield server, client
        await client.close()


async def fill(etcd: EtcdClient, keys: list[bytes]) -> None:
    """Past the quota, as the committer does: nested puts are not counted before 3.6."""
    for number in range(2 * QUOTA // VALUE):
        put = Put(keys[number % len(keys)], os.urandom(VALUE))
        await etcd.txn(Txn(success=(Txn(success=(put,)),)))
    await etcd.lease_grant(10)


async def test_an_etcd_full_of_history_takes_writes_again(tiny: tuple[EtcdProcess, EtcdClient]) -> None:
    server, etcd = tiny
    with pytest.raises(EtcdUnknown, match="space exceeded"):
        await fill(etcd, [KEYS.head(TOPIC, 0)])
    assert any("NOSPACE" in error for error in (await etcd.status()).errors)
    said: list[str] = []
    await repair(etcd, KEYS, said.append)
    assert said[-2:] == [
        "alarms cleared: 1",
        "etcd accepts writes; it holds 0 topics, 1 heads, 0 groups, 0 offsets",
    ]
    status = await etcd.status()
    assert status.db_bytes < QUOTA / 4
    assert status.errors == ()
    await etcd.put(KEYS.head(TOPIC, 0), b"")
    said.clear()
    await repair(etcd, KEYS, said.append)
    assert said[-2] == "alarms cleared: 0", "again does no harm"


async def test_an_etcd_full_of_keys_says_of_which_and_takes_writes_when_they_are_gone(
    tiny: tuple[EtcdProcess, EtcdClient],
) -> None:
    server, etcd = tiny
    offsets = [KEYS.committed(SlotId(0), "fill", TOPIC, number) for number in range(2 * QUOTA // VALUE)]
    with pytest.raises(EtcdUnknown, match="space exceeded"):
        await fill(etcd, offsets)
    with pytest.raises(StillFull, match=rf"{len(offsets)} offsets.*--delete works while it is full"):
        await repair(etcd, KEYS, lambda line: None)
    for key in offsets:
        await etcd.delete(key)
    done = subprocess.run(
        [sys.executable, "-m", "kafscale.runtime.etcd_repair"],
        env={**os.environ, "KAFSCALE_ETCD_ENDPOINTS": server.endpoint},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("etcd accepts writes; it holds 0 topics, 0 heads, 0 groups, 0 offsets\n")


async def test_an_etcd_that_is_away_is_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafscale.runtime.etcd_repair"],
        env={**os.environ, "KAFSCALE_ETCD_ENDPOINTS": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
