"""Repairs an etcd that is full (NOSPACE). It is harmless if etcd is not full.

It compacts the history, defragments each member in turn, clears the alarm, and grants a lease to check that etcd
accepts writes. It removes no key. If the keys themselves fill etcd, it prints their kinds; then the operator must
delete groups or topics first, which etcd accepts while it is full. `kafscale etcd-repair` runs this module. In a
container, `python -m kafscale.runtime.etcd_repair` repairs the etcd of KAFSCALE_ETCD_ENDPOINTS.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kafscale.runtime.dependencies import connect_etcd
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import BadSettings, read_settings
from kafscale.storage.etcd.client import EtcdClient, EtcdError, EtcdRejected, EtcdUnknown, UnknownKind
from kafscale.storage.etcd.transport import BadEndpoint, Endpoint
from kafscale.storage.keys import Keyspace, prefix_end

COMPACT_TIMEOUT_S: Final = 600.0
DEFRAGMENT_TIMEOUT_S: Final = 600.0
BACK_TIMEOUT_S: Final = 60.0
PROBE_LEASE_S: Final = 10


class StillFull(Exception):
    """Only deletions can make room."""

    def __init__(self, contents: str) -> None:
        super().__init__(
            f"etcd is still full of keys in use ({contents}): delete groups first (kafka-consumer-groups --delete "
            "works while it is full), or start etcd with a larger --quota-backend-bytes; then run this again"
        )


async def repair(etcd: EtcdClient, keys: Keyspace, say: Callable[[str], None]) -> None:
    """Reports each step to `say`. Raises `StillFull`, or `EtcdError` if etcd refuses or does not answer."""
    await _compact(etcd, say)
    for endpoint in etcd.access.endpoints:
        await _defragment(etcd, endpoint, say)
    say(f"alarms cleared: {await etcd.disarm_alarms()}")
    try:
        await etcd.lease_revoke(await etcd.lease_grant(PROBE_LEASE_S))
    except EtcdUnknown as unknown:
        if unknown.kind is not UnknownKind.NOSPACE:
            raise
        raise StillFull(await _contents(etcd, keys)) from unknown
    say(f"etcd accepts writes; it holds {await _contents(etcd, keys)}")


async def _compact(etcd: EtcdClient, say: Callable[[str], None]) -> None:
    revision = (await etcd.range(b"\0", keys_only=True)).revision
    try:
        await etcd.compact(revision, timeout_s=COMPACT_TIMEOUT_S)
    except EtcdRejected as rejected:
        if "has been compacted" not in rejected.detail:
            raise
    say(f"history up to revision {revision} is compacted")


async def _defragment(etcd: EtcdClient, endpoint: Endpoint, say: Callable[[str], None]) -> None:
    """Defragments one member and waits until it answers again. The others serve meanwhile."""
    member = EtcdClient(replace(etcd.access, endpoints=(endpoint,)))
    try:
        before = await member.status()
        await member.defragment(timeout_s=DEFRAGMENT_TIMEOUT_S)
        after = await member.status(timeout_s=BACK_TIMEOUT_S)
    finally:
        await member.close()
    say(f"{endpoint.target}: {_mib(before.db_bytes)} before, {_mib(after.db_bytes)} after")


async def _contents(etcd: EtcdClient, keys: Keyspace) -> str:
    """The number of keys of each kind in the namespace."""
    kinds = {
        "topics": keys.topics_prefix(),
        "heads": keys.heads_prefix(),
        "groups": keys.groups_prefix(),
        "offsets": keys.commits_prefix(),
    }
    counts = []
    for kind, prefix in kinds.items():
        found = await etcd.range(prefix, range_end=prefix_end(prefix), limit=1, keys_only=True)
        counts.append(f"{found.count} {kind}")
    return ", ".join(counts)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


async def _of_settings(settings: ServiceSettings) -> None:
    etcd = connect_etcd(settings)
    try:
        await repair(etcd, Keyspace(settings.namespace), _print)
    finally:
        await etcd.close()


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    try:
        asyncio.run(_of_settings(read_settings(ServiceSettings)))
    except (BadSettings, BadEndpoint, EtcdError, StillFull, OSError) as trouble:
        sys.stderr.write(f"{trouble}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
