"""Offsets of groups in transactions, through a front door and two coordinators: with the commit they are the group's.

A transactional id and a group have a slot each. So the questions and the ends of a transaction cross between the
coordinators, or stay in one. The requests are those of a client of KIP-890 (TV2) and of one from before.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from kafscale.storage.coordination import decode_owner
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import SCHEMA
from kafscale.storage.slots import slot_of
from kafscale.store.v1 import store_pb2 as pb
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    add_offsets_to_txn,
    end_txn,
    init_producer_id,
    offset_fetch,
    txn_offset_commit,
)

from e2e.harness.cluster import Cluster
from e2e.harness.damage import Damage, Scene
from e2e.harness.requests import ask, create
from e2e.harness.services import until
from e2e.harness.victims import GARBAGE

TOPIC, PAIRS, TIMEOUT_MS = "read", 8, 60_000
COORDINATORS = 2
NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
RETRY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("offsets") / "data",
        scale={"coordinator": COORDINATORS},
    )
    cluster.start()
    scene = Scene(cluster)
    with scene.raw() as raw:
        assert create(raw, TOPIC) == NONE
    yield scene
    cluster.kill()


def kill_coordinators(scene: Scene) -> None:
    """Both at once. Their supervisor starts others."""
    until("both run", lambda: len(scene.cluster.pids("coordinator")) == COORDINATORS, 30)
    for pid in scene.cluster.pids("coordinator"):
        os.kill(pid, signal.SIGKILL)


class Client:
    """A producer with an id, which reads for one group. `is_old`: it adds the group in a request of its own (TV1)."""

    def __init__(self, scene: Scene, number: int, *, is_old: bool = False) -> None:
        self.scene = scene
        self.number = number
        self.name, self.group = f"id-{number}-{is_old}", f"group-{number}-{is_old}"
        self.is_old = is_old
        self.producer_id, self.epoch = -1, -1
        self.init()

    def until_done(self, what: str, once: Callable[[], int]) -> None:
        """As a client does: again, while the error is one to retry on."""

        def again() -> bool:
            error = once()
            assert error in RETRY | {NONE}, (what, ErrorCode(error))
            return error == NONE

        until(f"{what} of {self.name}", again, 30)

    def init(self) -> None:
        self.until_done("InitProducerId", self.init_once)

    def init_once(self) -> int:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS
        )
        with self.scene.raw() as raw:
            answer = ask(raw, init_producer_id, 5, request)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def add_group(self) -> None:
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=self.group,
        )

        def once() -> int:
            with self.scene.raw() as raw:
                return int(ask(raw, add_offsets_to_txn, 3, request).error_code)

        self.until_done("AddOffsetsToTxn", once)

    def put(self, offset: int) -> None:
        partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )

        def once() -> int:
            with self.scene.raw() as raw:
                answer = ask(raw, txn_offset_commit, 3 if self.is_old else 5, request)
            return int(answer.topics[0].partitions[0].error_code)

        if self.is_old:
            self.add_group()
        self.until_done("TxnOffsetCommit", once)

    def end(self, *, commit: bool) -> None:
        self.until_done("EndTxn", lambda: self.end_once(commit=commit))

    def end_once(self, *, commit: bool) -> int:
        request = end_txn.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        with self.scene.raw() as raw:
            answer = ask(raw, end_txn, 3 if self.is_old else 5, request)
        if answer.error_code == NONE and not self.is_old:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def offset(self, *, stable: bool) -> tuple[int, int]:
        """Error and offset."""
        topics = [offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        request = offset_fetch.OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=stable)
        with self.scene.raw() as raw:
            answer = ask(raw, offset_fetch, 7, request)
        if answer.error_code:
            return answer.error_code, -1
        found = answer.topics[0].partitions[0]
        return found.error_code, found.committed_offset

    def until_offset(self, offset: int) -> None:
        until(f"{self.group} has {offset}", lambda: self.offset(stable=True) == (NONE, offset), 30)


@pytest.mark.parametrize("is_old", [False, True], ids=["tv2", "tv1"])
def test_a_group_gets_the_offsets_of_committed_transactions_and_of_no_others(
    scene: Scene, is_old: bool
) -> None:
    for client in [Client(scene, number, is_old=is_old) for number in range(PAIRS)]:
        client.put(5)
        assert client.offset(stable=True) == (UNSTABLE, -1)
        assert client.offset(stable=False) == (NONE, -1)
        client.end(commit=True)
        client.put(7)
        client.end(commit=False)
        client.until_offset(5)
        client.put(9)
        client.init()  # its successor aborts what it had under way
        client.until_offset(5)


def test_the_transactions_crossed_between_two_coordinators(scene: Scene) -> None:
    keys = Keyspace()
    owners = {kv.key: decode_owner(kv.value).owner for kv in scene.find(keys.slot_claims_prefix())}

    def owner(name: str) -> str:
        return owners[keys.slot_claim(slot_of(name))]

    together = {owner(f"id-{each}-False") == owner(f"group-{each}-False") for each in range(PAIRS)}
    assert together == {True, False}


def test_a_transaction_ends_in_the_group_after_all_coordinators_were_killed(scene: Scene) -> None:
    """Whatever was written, the next coordinators continue from it."""
    client = Client(scene, 100)
    client.put(5)
    client.end(commit=True)
    kill_coordinators(scene)
    client.until_offset(5)


# -- damage: the rows of docs/protocol/damage.md -----------------------------------------------------


def replaced(scene: Scene, key: bytes, value: bytes | None, slot_name: str) -> bytes:
    """What the key had. The slot's claim is written too, so its coordinator reads the slot again."""
    found = scene.get(key)
    before = b"" if found is None else found.value
    if value is None:
        scene.delete(key)
    else:
        scene.put(key, value)
    claim = Keyspace().slot_claim(slot_of(slot_name))
    owned = scene.get(claim)
    assert owned is not None
    scene.put(claim, owned.value)
    until(
        "the slot is claimed again", lambda: (kv := scene.get(claim)) is not None and kv.value != owned.value
    )
    return before


def damaged(way: Damage, message: pb.TransactionState | pb.PendingOffsets, value: bytes) -> bytes | None:
    message.ParseFromString(value)
    message.schema = SCHEMA + 1
    return {Damage.MISSING: None, Damage.UNREADABLE: GARBAGE, Damage.NEWER: message.SerializeToString()}[way]


def is_told(wanted: int, asked: Callable[[], int]) -> None:
    until(f"the answer is {ErrorCode(wanted).name}", lambda: asked() == wanted, 30)
    assert asked() == wanted


@pytest.mark.parametrize("way", Damage)
def test_a_damaged_transactional_id_affects_no_other(scene: Scene, way: Damage) -> None:
    client = Client(scene, 200 + list(Damage).index(way))
    slot = slot_of(client.name)
    neighbour = next(each for each in range(1_000, 9_000) if slot_of(f"id-{each}-False") == slot)
    client.put(5)
    key = Keyspace().transaction(slot, client.name)
    found = scene.get(key)
    assert found is not None
    value = damaged(way, pb.TransactionState(), found.value)
    before = replaced(scene, key, value, client.name)
    if way is Damage.MISSING:
        is_told(ErrorCode.INVALID_PRODUCER_ID_MAPPING, lambda: client.end_once(commit=True))
        old = client.producer_id
        client.init()
        assert client.producer_id != old
        return
    is_told(ErrorCode.COORDINATOR_NOT_AVAILABLE, lambda: client.end_once(commit=True))
    Client(scene, neighbour).put(3)
    stored = scene.get(key)
    assert stored is not None
    assert stored.value == value, "it was written over"
    replaced(scene, key, before, client.name)
    client.end(commit=True)
    client.until_offset(5)


@pytest.mark.parametrize("way", Damage)
def test_damaged_pending_offsets_hold_up_their_group_alone(scene: Scene, way: Damage) -> None:
    client, other = Client(scene, 300 + list(Damage).index(way)), Client(scene, 400)
    client.put(5)
    key = Keyspace().pending(slot_of(client.group), client.group, client.producer_id)
    found = scene.get(key)
    assert found is not None
    value = damaged(way, pb.PendingOffsets(), found.value)
    before = replaced(scene, key, value, client.group)
    client.end(commit=True)
    other.put(6)
    other.end(commit=True)
    other.until_offset(6)
    if way is Damage.MISSING:
        is_told(NONE, lambda: client.offset(stable=True)[0])
        assert client.offset(stable=True) == (NONE, -1)
        return
    is_told(UNSTABLE, lambda: client.offset(stable=True)[0])
    assert client.offset(stable=False) == (NONE, -1)
    stored = scene.get(key)
    assert stored is not None
    assert stored.value == value, "it was written over"
    replaced(scene, key, before, client.group)
    client.until_offset(5)
