"""What commits leave in etcd levels off: history is compacted, and its pages are written again.

At an accelerated rate: seconds of history instead of the two minutes that are kept, and thousands of commits a
second. The size is asserted and no time.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kafscale.storage.etcd.client import EtcdClient, Put, Txn
from kafscale.storage.keys import Keyspace
from kafscale.testkit.etcd import start_etcd

HISTORY_S = 1
COMMITS_PER_S_MAX = 2_000
PARTITIONS = 100
HEAD_BYTES = 2_150
DATABASE_BYTES_PER_COMMIT = 4_500
"""4.1 KB were measured of a head with half a tail; bbolt's pages make the rest."""
LEVEL_BYTES = 3 * HISTORY_S * COMMITS_PER_S_MAX * DATABASE_BYTES_PER_COMMIT
"""Etcd compacts each HISTORY_S and keeps as much, so two of them are there; the third is for a late compaction."""


async def commit_all(client: EtcdClient, keys: Keyspace) -> None:
    """A commit of each partition, nested as the committer nests them, no faster than the rate."""
    pace = asyncio.sleep(PARTITIONS / COMMITS_PER_S_MAX)
    puts = (
        Txn(success=(Put(keys.head(bytes(16), partition), os.urandom(HEAD_BYTES)),))
        for partition in range(PARTITIONS)
    )
    await asyncio.gather(client.txn(Txn(success=tuple(puts)), timeout_s=30), pace)


async def test_the_file_levels_off_while_many_times_its_size_is_committed(tmp_path: Path) -> None:
    flags = (f"--auto-compaction-retention={HISTORY_S}s",)
    with start_etcd(tmp_path, extra=flags) as server:
        client, keys = EtcdClient.connect([server.endpoint]), Keyspace()
        largest_used = committed = 0
        while committed * DATABASE_BYTES_PER_COMMIT < 3 * LEVEL_BYTES:
            await commit_all(client, keys)
            committed += PARTITIONS
            status = await client.status(timeout_s=30)
            largest_used = max(largest_used, status.db_bytes_in_use)
            assert status.db_bytes <= LEVEL_BYTES, f"after {committed} commits"
        assert status.db_bytes <= 1.5 * largest_used, "the file is what was once in use, and little more"
        assert status.errors == ()
        await client.close()
