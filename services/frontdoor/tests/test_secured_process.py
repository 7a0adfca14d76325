"""Front doors with logins and ACLs as real processes: what keeps them from starting, alone and as workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.decoy_key import DECOY_KEY_BYTES
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.testkit.acls import acl
from kafscale.testkit.fixtures import etcd, etcd_server, keyspace
from test_process import Running, asks_versions, front_door, registered, scrape

__all__ = ["etcd", "etcd_server", "keyspace"]

READ = acl("TOPIC:LITERAL:orders READ")
WAIT_S = 60


async def logged(running: Running, start: str) -> None:
    """Returns when a line begins so."""
    async with asyncio.timeout(WAIT_S):
        while not any(str(line["event"]).startswith(start) for line in running.lines):
            await asyncio.sleep(0.05)


def secured(workers: str) -> dict[str, str]:
    return {
        "KAFSCALE_LISTENERS": "SASL_PLAINTEXT://127.0.0.1:0",
        "KAFSCALE_AUTHORIZER": "acl",
        "KAFSCALE_FRONTDOOR_WORKERS": workers,
    }


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_damaged_decoy_key_ends_the_start_and_the_log_says_what_to_delete(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace, tmp_path: Path, workers: str
) -> None:
    key = AccessKeys(keyspace).decoy_key
    await etcd.put(key, b"short")
    async with front_door(etcd_server, keyspace, tmp_path, **secured(workers)) as running:
        async with asyncio.timeout(WAIT_S):
            assert await running.ended() == 1
        (why,) = running.logged("cannot serve")
        assert f"etcdctl del {key.decode()}" in str(why["why"])


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_front_door_serves_when_every_acl_can_be_read(
    etcd_server: EtcdProcess, etcd: EtcdClient, keyspace: Keyspace, tmp_path: Path, workers: str
) -> None:
    keys = AccessKeys(keyspace)
    await etcd.put(keys.acl(READ), b"\xff")
    async with front_door(etcd_server, keyspace, tmp_path, **secured(workers)) as running:
        await logged(running, "access refused")
        assert not running.logged("listening")
        await etcd.delete(keys.acl(READ))
        (instance,) = await registered(etcd, keyspace)
        (shown,) = instance.listeners
        assert shown.name == "SASL_PLAINTEXT"
        assert await asks_versions(shown.port)
        text = await asyncio.to_thread(scrape, instance.http_address)
        assert "kafscale_frontdoor_access_view_age_seconds" in text
        (stored,) = (await etcd.range(keys.decoy_key)).kvs
        assert len(stored.value) == DECOY_KEY_BYTES
