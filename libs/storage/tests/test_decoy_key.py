"""The key of the salts of users who do not exist: drawn once, the same for all, never a damaged one."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.decoy_key import DECOY_KEY_BYTES, DecoyKeyDamaged, shared_decoy_key
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace


async def test_front_doors_that_start_together_have_one_key(etcd: EtcdClient, keyspace: Keyspace) -> None:
    keys = AccessKeys(keyspace)
    found = await asyncio.gather(*(shared_decoy_key(etcd, keys) for _ in range(8)))
    assert len(set(found)) == 1
    assert len(found[0]) == DECOY_KEY_BYTES
    assert await shared_decoy_key(etcd, keys) == found[0]


async def test_two_clusters_have_two_keys(etcd: EtcdClient, keyspace: Keyspace) -> None:
    other = Keyspace(f"{keyspace.namespace}-other")
    first = await shared_decoy_key(etcd, AccessKeys(keyspace))
    assert await shared_decoy_key(etcd, AccessKeys(other)) != first


@pytest.mark.parametrize("value", [b"", b"x" * 31, b"x" * 33])
async def test_a_value_that_is_no_key_is_refused_and_stays(
    etcd: EtcdClient, keyspace: Keyspace, value: bytes
) -> None:
    keys = AccessKeys(keyspace)
    await etcd.put(keys.decoy_key, value)
    with pytest.raises(DecoyKeyDamaged, match=f"etcdctl del /kafscale/{keyspace.namespace}/secret/decoy-key"):
        await shared_decoy_key(etcd, keys)
    assert (await etcd.range(keys.decoy_key)).kvs[0].value == value


def test_the_key_is_outside_of_what_other_processes_watch(keyspace: Keyspace) -> None:
    keys = AccessKeys(keyspace)
    assert not any(keys.decoy_key.startswith(prefix) for prefix in (keys.acls, keys.quotas, keys.users))
