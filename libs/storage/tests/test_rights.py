"""Least privilege at the stores: the tables, and what a real etcd makes of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage import access_keys as access_keys_module
from kafscale.storage import keys as keys_module
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.backups import read, take
from kafscale.storage.decoy_key import shared_decoy_key
from kafscale.storage.etcd.client import Delete, EtcdClient, EtcdRejected, Put, Txn
from kafscale.storage.history import witness as witness_module
from kafscale.storage.history.witness import witnesses_prefix
from kafscale.storage.keys import Keyspace, SlotId, TopicId, prefix_end
from kafscale.storage.objects import MemoryStore
from kafscale.storage.recovery_keys import backup_folder, deletion_mark, deletion_marks_prefix
from kafscale.storage.rights import INSTANCES, Role
from kafscale.storage.rights.etcd import Kind, identity
from kafscale.storage.rights.objects import Action, StoreUse, grants_of, policy_of, use_of
from kafscale.testkit.etcd import give_users, start_etcd

KEYS = Keyspace("a.b-c_d")
OTHER_CLUSTER = Keyspace("a.b-c_d2")
PASSWORD = "correct horse"
EXPECTED = """
              frontdoor produce fetch coordinator admin upkeep operator
cluster       r         r       r     r           rw    r      r
t/            r         r       r     r           rw    r      r
p/            -         rw      r     -           rw    rw     r
m/            -         rw      r     -           rw    rw     r
o/            r         rw      r     r           rw    w      r
e/            -         -       -     -           rw    -      -
pid/          -         -       -     rw          -     -      -
cs/           r         r       -     rw          -     -      r
g/            -         -       -     rw          -     r      r
c/            -         -       -     rw          -     r      r
cp/           -         -       -     rw          -     -      r
x/            -         -       -     rw          -     -      r
gc/           -         -       -     r           rw    -      -
job/          -         -       -     -           -     rw     -
job-place/    -         -       -     -           -     rw     -
pass/         -         -       -     -           w     rw     -
settle/       -         r       -     -           -     -      w
acl/          r         r       r     r           rw    -      -
quota/        r         -       -     -           rw    -      -
user/         r         -       -     -           rw    -      -
secret/decoy-key  rw    -       -     -           -     -      -
h/            -         rw      -     -           rw    rw     r
live/frontdoor/   rw    -       -     r           r     -      r
live/produce/     r     rw      -     r           -     r      r
live/fetch/       r     -       rw    -           -     -      r
live/coordinator/ r     r       -     rw          -     -      r
live/admin/       r     -       -     -           rw    -      r
live/upkeep/      -     -       -     -           -     rw     r
node/frontdoor/   rw    -       r     -           -     -      -
node/produce/     -     rw      r     -           -     -      -
node/fetch/       -     -       rw    -           -     -      -
node/coordinator/ -     -       r     rw          -     -      -
node/admin/       -     -       r     -           rw    -      -
node/upkeep/      -     -       r     -           -     rw     -
"""
"""By hand, so that a change of the table is a change here. Fetch reads `node/` and `o/` because of its range."""


def expected() -> Iterator[tuple[str, Role, str]]:
    head, *rows = (line.split() for line in EXPECTED.strip().splitlines())
    for kind, *cells in rows:
        yield from ((kind, Role(name), cell.strip("-")) for name, cell in zip(head, cells, strict=True))


def test_every_key_that_is_documented_has_a_kind_and_no_kind_lies_within_another() -> None:
    documented = set(re.findall(r"^    ([a-z-]+/?)", keys_module.__doc__ or "", re.MULTILINE))
    documented |= set(
        re.findall(r"^    ([a-z-]+/(?:decoy-key)?)", access_keys_module.__doc__ or "", re.MULTILINE)
    )
    documented |= set(re.findall(r"^    (h/)", witness_module.__doc__ or "", re.MULTILINE))
    kinds = {kind.value for kind in Kind}
    assert documented - {"live/", "node/"} == kinds
    assert not [(one, two) for one in kinds for two in kinds if one != two and one.startswith(two)]


def test_the_kinds_are_the_prefixes_of_the_keys() -> None:
    topic, slot = TopicId(bytes(16)), SlotId(7)
    keys = {
        Kind.CLUSTER: KEYS.cluster(),
        Kind.TOPICS: KEYS.topic("t"),
        Kind.HEADS: KEYS.head(topic, 0),
        Kind.METAS: KEYS.meta(topic, 0),
        Kind.OWNERS: KEYS.owner(topic, 0),
        Kind.EPOCH_FLOORS: KEYS.epoch_floor("t"),
        Kind.PRODUCER_IDS: KEYS.pid_next(),
        Kind.SLOT_CLAIMS: KEYS.slot_claim(slot),
        Kind.GROUPS: KEYS.group(slot, "g"),
        Kind.OFFSETS: KEYS.committed(slot, "g", topic, 0),
        Kind.PENDING_OFFSETS: KEYS.pending(slot, "g", 1),
        Kind.TRANSACTIONS: KEYS.transaction(slot, "id"),
        Kind.GROUP_CONFIGS: KEYS.group_config("g"),
        Kind.JOB_RUNS: KEYS.job_run("j"),
        Kind.JOB_PLACES: KEYS.job_place("j"),
        Kind.PASSES: KEYS.compaction_pass(topic, 0),
        Kind.SETTLE_REQUESTS: KEYS.settle_request("r"),
    }
    access = AccessKeys(KEYS)
    keys |= {
        Kind.ACLS: access.acls,
        Kind.QUOTAS: access.quotas,
        Kind.USERS: access.users,
        Kind.DECOY_KEY: access.decoy_key,
        Kind.WITNESSES: witnesses_prefix(KEYS),
    }
    assert set(Kind) == set(keys)
    for kind, key in keys.items():
        assert key.startswith(KEYS.root() + kind.value.encode())


@asynccontextmanager
async def client_of(etcd: EtcdProcess, user: str) -> AsyncIterator[EtcdClient]:
    client = EtcdClient.connect([etcd.endpoint], user=user, password=PASSWORD)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """With a user for each role, and authentication."""
    with start_etcd(tmp_path_factory.mktemp("guarded"), extra=("--bcrypt-cost=4",)) as server:
        asyncio.run(give_users(server.endpoint, KEYS, Role, PASSWORD))
        yield server


async def allowed(client: EtcdClient, key: bytes) -> str:
    """Which of reads, deletions and writes etcd lets through, of the key and of all keys below it."""
    found = ""
    whole = {"range_end": prefix_end(key)} if key.endswith(b"/") else {}
    for right, ask in (
        ("r", lambda: client.range(key, **whole)),
        ("d", lambda: client.txn(Txn(success=(Delete(key, whole.get("range_end")),)))),
        ("w", lambda: client.txn(Txn(success=(Put(key, b""),)))),
    ):
        try:
            await ask()
        except EtcdRejected as refused:
            if "permission denied" not in refused.detail:
                raise
        else:
            found += right
    return found


@pytest.mark.parametrize("role", list(Role))
async def test_etcd_refuses_each_role_all_that_is_not_in_its_column(guarded: EtcdProcess, role: Role) -> None:
    async with client_of(guarded, identity(KEYS, role)) as client:
        found = {
            kind: await allowed(client, KEYS.root() + kind.encode())
            for kind, whose, _ in expected()
            if whose is role
        }
        elsewhere = [await allowed(client, root + b"t/") for root in (OTHER_CLUSTER.root(), b"/", b"x")]
    wanted = {kind: rights.replace("w", "dw") for kind, whose, rights in expected() if whose is role}
    assert found == wanted
    assert elsewhere == ["", "", ""]


async def test_only_front_doors_draw_and_read_the_key_of_unknown_users(guarded: EtcdProcess) -> None:
    keys = AccessKeys(KEYS)
    async with client_of(guarded, "root") as root:
        await root.txn(Txn(success=(Delete(keys.decoy_key),)))
    async with client_of(guarded, identity(KEYS, Role.FRONTDOOR)) as door:
        drawn = await shared_decoy_key(door, keys)
        assert await shared_decoy_key(door, keys) == drawn
    for role in set(Role) - {Role.FRONTDOOR}:
        async with client_of(guarded, identity(KEYS, role)) as other:
            with pytest.raises(EtcdRejected, match="permission denied"):
                await shared_decoy_key(other, keys)


async def test_only_root_may_take_a_snapshot_of_etcd(guarded: EtcdProcess) -> None:
    async with client_of(guarded, identity(KEYS, Role.UPKEEP)) as upkeep:
        with pytest.raises(EtcdRejected, match="permission denied"):
            [piece async for piece in upkeep.snapshot()]
    store = MemoryStore()
    async with client_of(guarded, "root") as root:
        made = await take(root, store, KEYS, 0)
    assert b"".join([part async for part in read(store, made)]).count(PASSWORD.encode()) == 0


async def test_fetch_watches_metas_to_heads_as_one_range(guarded: EtcdProcess) -> None:
    async with client_of(guarded, "root") as root, client_of(guarded, identity(KEYS, Role.FETCH)) as fetch:
        put = await root.put(KEYS.meta(TopicId(bytes(16)), 0), b"m")
        start, end = KEYS.metas_prefix(), prefix_end(KEYS.heads_prefix())
        async with fetch.watch(start, range_end=end, start_revision=put.revision) as watch:
            assert [event.kv.value for event in (await anext(watch)).events] == [b"m"]


async def test_only_who_may_write_a_leases_keys_may_revoke_it(guarded: EtcdProcess) -> None:
    """The rest of what etcd allows with leases is in the table's text."""
    async with (
        client_of(guarded, identity(KEYS, Role.PRODUCE)) as produce,
        client_of(guarded, identity(KEYS, Role.FETCH)) as fetch,
    ):
        lease = await produce.lease_grant(60)
        await produce.put(KEYS.live("produce", 1, "b"), b"", lease=lease)
        with pytest.raises(EtcdRejected, match="permission denied"):
            await fetch.lease_revoke(lease)
        await produce.lease_revoke(lease)


def rights_at(role: Role, key: str) -> set[Action]:
    return {action for action in Action for grant in grants_of(KEYS, role) if grant.allows(action, key)}


BUCKET_ONLY = {Action.LIST}
READS = {Action.LIST, Action.GET}
ALL = set(Action)
OBJECTS = [
    # role, segments, bundles, snapshots, other own objects, the probe, another cluster's objects
    (Role.FRONTDOOR, set(), set(), set(), set(), set(), set()),
    (Role.COORDINATOR, set(), set(), set(), set(), set(), set()),
    (Role.FETCH, READS, READS, READS, READS, BUCKET_ONLY, BUCKET_ONLY),
    (Role.OPERATOR, READS, READS, READS, READS, BUCKET_ONLY, BUCKET_ONLY),
    (Role.PRODUCE, READS | {Action.PUT}, ALL, ALL, READS | {Action.PUT}, ALL, BUCKET_ONLY),
    (Role.ADMIN, *[READS | {Action.DELETE}] * 4, ALL, BUCKET_ONLY),
    (Role.UPKEEP, READS | {Action.DELETE}, ALL, ALL, ALL, ALL, BUCKET_ONLY),
]


@pytest.mark.parametrize(("role", "segment", "bundle", "snapshot", "manifest", "probe", "elsewhere"), OBJECTS)
def test_each_role_may_do_this_in_the_bucket(
    role: Role,
    segment: set[Action],
    bundle: set[Action],
    snapshot: set[Action],
    manifest: set[Action],
    probe: set[Action],
    elsewhere: set[Action],
) -> None:
    topic = TopicId(bytes(16))
    assert rights_at(role, KEYS.segment_key("t", 0, 0)) == segment
    assert rights_at(role, KEYS.bundles_prefix() + "2026010100/x.kfb") == bundle
    assert rights_at(role, KEYS.snapshot_key(topic, 0, 0, "u")) == snapshot
    assert rights_at(role, KEYS.manifest_key(topic, 0, 0, "u")) == manifest
    assert rights_at(role, ".kafscale-probe/x") == probe
    assert rights_at(role, OTHER_CLUSTER.segment_key("t", 0, 0)) == elsewhere


def test_the_admin_writes_marks_of_deleted_topics_and_no_role_reads_snapshots_of_etcd() -> None:
    mark = deletion_mark(KEYS, TopicId(bytes(16)), 0)
    assert [role for role in Role if Action.PUT in rights_at(role, mark)] == [
        Role.PRODUCE,
        Role.ADMIN,
        Role.UPKEEP,
    ]
    snapshot = backup_folder(KEYS, 0) + "part-00000"
    assert all(rights_at(role, snapshot) <= BUCKET_ONLY for role in Role)


def test_a_policy_has_one_statement_for_each_action_and_only_the_clusters_objects() -> None:
    policy = policy_of(KEYS, Role.FETCH, "records")
    assert policy == {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::records"},
            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::records/a.b-c_d/*"},
        ],
    }
    assert policy_of(KEYS, Role.FRONTDOOR, "records") is None
    assert policy_of(KEYS, Role.COORDINATOR, "records") is None


def test_a_role_probes_only_as_far_as_it_may() -> None:
    assert {role: use_of(role) for role in INSTANCES} == {
        Role.FRONTDOOR: StoreUse.NONE,
        Role.PRODUCE: StoreUse.CHANGE,
        Role.FETCH: StoreUse.READ,
        Role.COORDINATOR: StoreUse.NONE,
        Role.ADMIN: StoreUse.CHANGE,
        Role.UPKEEP: StoreUse.CHANGE,
    }
    assert use_of("another program") is StoreUse.CHANGE


def test_folders_of_rights_are_named_as_the_keys_are(tmp_path: Path) -> None:
    assert KEYS.bundles_prefix() == f"{KEYS.namespace}/@kafscale/bundle/"
    assert KEYS.snapshots_prefix(TopicId(bytes(16))).startswith(f"{KEYS.namespace}/@kafscale/producers/")
    assert deletion_marks_prefix(KEYS) == f"{KEYS.namespace}/@kafscale/deleted/"
