"""A stored value of each kind is lost, damaged, or written by a newer version, while another client works.

Law: the owner of the value sees what the row says. No process ends, no other client gets an error, and no damaged
value is overwritten as if it were absent. The rows are those of docs/protocol/damage.md, as are those of bundles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest
from kafscale.storage.coordination import decode_owner
from kafscale.storage.job_runs import decode_job_run
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.slots import slot_of
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import init_producer_id

from e2e.harness.bundle_damage import BUNDLE_ROWS, DAMAGES, PARTITIONS, BundleRow, BundleVictim, is_logged
from e2e.harness.bundles import SEGMENTS
from e2e.harness.cluster import Cluster
from e2e.harness.damage import ROWS, Damage, Row, Scene
from e2e.harness.inside import metric
from e2e.harness.requests import ask, ask_metadata, create
from e2e.harness.services import NotYet, until
from e2e.harness.steady import Steady
from e2e.harness.victims import (
    COMMITTED,
    FILL,
    GARBAGE,
    JOB,
    Victim,
    damage_key,
    damage_objects,
    own_slot,
)

BLOCK = 1_100
"""More ids than a coordinator reserves at once."""
ASKS_EVERY_S = 0.3
ROLES = ("frontdoor", "produce", "fetch", "coordinator", "admin", "upkeep", "etcd")
NONE, STORAGE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("damage") / "data",
        scale={"fetch": 2},
        env={**SEGMENTS, "KAFSCALE_LAG_EVERY_MS": "1000"},
    )
    cluster.start()
    yield Scene(cluster)
    cluster.kill()


@contextmanager
def bystanding(scene: Scene, name: str) -> Iterator[Steady]:
    """Goes on before, during and after; and no process ends."""
    pids = {role: scene.cluster.pids(role) for role in ROLES}
    topic = f"bystander-{name}"
    with scene.raw() as raw:
        assert create(raw, topic) == NONE
    steady = Steady(scene.cluster.bootstrap, topic)
    steady.start()
    yield steady
    before = steady.read
    until("the bystander goes on", lambda: steady.read > before + 2 or bool(steady.errors))
    steady.stop()
    assert steady.errors == []
    assert steady.read == steady.sent
    assert {role: scene.cluster.pids(role) for role in ROLES} == pids, "a process ended"


# -- what the rows say ------------------------------------------------------------------------------


def is_told(what: str, wanted: int, asked: Callable[[], int]) -> None:
    """Waits, because a watch may be behind; then asks again, because the answer must stay the same."""
    told: list[int] = []

    def ask_again() -> bool:
        told[:] = [asked()]
        return told == [wanted]

    try:
        until(f"{what} is answered {ErrorCode(wanted).name}", ask_again, 60, every_s=ASKS_EVERY_S)
    except NotYet as late:
        raise AssertionError(f"{late}, but {[ErrorCode(code).name for code in told]}") from None
    assert asked() == wanted


def topic_row(victim: Victim, way: Damage) -> None:
    if way is Damage.MISSING:
        is_told("Produce", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, victim.sends)
        is_told("Fetch", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, victim.reads)
        return
    is_told("Produce", STORAGE, victim.sends)
    is_told("Fetch", STORAGE, victim.reads)
    is_told("OffsetFetch", ErrorCode.UNSTABLE_OFFSET_COMMIT, lambda: victim.offset()[0])
    with victim.scene.raw() as raw:
        assert ask_metadata(raw, victim.topic) == STORAGE
        assert create(raw, victim.topic) in (STORAGE, ErrorCode.TOPIC_ALREADY_EXISTS)


def head_row(victim: Victim, way: Damage) -> None:
    is_told("Produce", STORAGE, victim.sends)
    if way is not Damage.MISSING:
        is_told("Fetch", STORAGE, victim.reads)


def meta_row(victim: Victim, way: Damage) -> None:
    if way is not Damage.MISSING:
        is_told("Fetch", STORAGE, victim.reads)
    is_told("Produce", STORAGE, victim.sends)


def nothing_row(victim: Victim, _: Damage) -> None:
    is_told("Produce", NONE, victim.sends)
    is_told("Fetch", NONE, victim.reads)


def floor_row(victim: Victim, way: Damage) -> None:
    with victim.scene.raw() as raw:
        harmed = create(raw, f"next-{victim.topic}")
        assert harmed == (NONE if way is Damage.MISSING else STORAGE)
        assert create(raw, f"other-{victim.topic}") == NONE


def cluster_row(victim: Victim, way: Damage) -> None:
    nothing_row(victim, way)
    with victim.scene.raw() as raw:
        assert ask_metadata(raw, victim.topic) == NONE


def ids_row(victim: Victim, way: Damage) -> None:
    request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    codes = set()
    with victim.scene.raw() as raw:
        for _ in range(BLOCK):
            codes.add(ask(raw, init_producer_id, 1, request).error_code)
    assert codes <= {NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (ErrorCode.COORDINATOR_NOT_AVAILABLE in codes) == (way is not Damage.MISSING)
    nothing_row(victim, way)


def slot_row(victim: Victim, way: Damage) -> None:
    if way is Damage.NEWER:
        is_told("OffsetCommit", ErrorCode.COORDINATOR_NOT_AVAILABLE, victim.commits)
        return

    def is_claimed() -> bool:
        found = victim.scene.get(victim.scene.keys.slot_claim(slot_of(victim.group)))
        return found is not None and found.value != GARBAGE and bool(decode_owner(found.value).owner)

    until("the slot is claimed anew", is_claimed, 60)
    is_told("OffsetCommit", NONE, victim.commits)
    assert victim.offset() == (NONE, COMMITTED)


def group_row(victim: Victim, way: Damage) -> None:
    claim_again(victim)
    if way is Damage.MISSING:
        is_told("OffsetCommit", NONE, victim.commits)
    else:
        is_told("OffsetCommit", ErrorCode.COORDINATOR_NOT_AVAILABLE, victim.commits)
    assert victim.offset() == (NONE, COMMITTED)


def claim_again(victim: Victim) -> None:
    """The slot's key changes, so its owner reads the slot's groups again."""
    key = victim.scene.keys.slot_claim(slot_of(victim.group))
    found = victim.scene.get(key)
    assert found is not None
    victim.scene.put(key, found.value)
    before = found.value
    until(
        "the slot is claimed again", lambda: (kv := victim.scene.get(key)) is not None and kv.value != before
    )


def offset_row(victim: Victim, way: Damage) -> None:
    if way is Damage.MISSING:
        assert victim.offset() == (NONE, -1)
    else:
        assert victim.offset()[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert victim.commits(COMMITTED + 1) == NONE
    assert victim.offset() == (NONE, COMMITTED + 1)


def job_row(victim: Victim, _: Damage) -> None:
    def is_written() -> bool:
        found = victim.scene.get(victim.scene.keys.job_run(JOB))
        try:
            return found is not None and decode_job_run(found.value) > 0
        except UnreadableValue:
            return False

    until("the job has ended again", is_written, 90)


def user_row(victim: Victim, way: Damage) -> None:
    wanted = ErrorCode.RESOURCE_NOT_FOUND if way is Damage.MISSING else STORAGE
    is_told("DescribeUserScramCredentials", wanted, victim.is_enrolled)
    if way is not Damage.MISSING:
        is_told("AlterUserScramCredentials", STORAGE, victim.enrolls)


def unread_row(victim: Victim, _way: Damage) -> None:
    is_told("Fetch", STORAGE, victim.reads)
    for _turn in range(FILL):
        assert victim.sends() == NONE


def history_row(victim: Victim, _: Damage) -> None:
    (upkeep,) = victim.scene.cluster.inside().instances("upkeep")

    def runs(name: str) -> float:
        return metric(upkeep.http_address, f"kafscale_upkeep_{name}_total").get(f'task="{JOB}"}}', 0)

    failed, ended = runs("failures"), runs("runs")
    until("lag is sampled", lambda: runs("runs") > ended + 1, 120)
    assert runs("failures") == failed


CHECKS: dict[str, Callable[[Victim, Damage], None]] = {
    "topic": topic_row,
    "head": head_row,
    "meta": meta_row,
    "owner": nothing_row,
    "epoch floor": floor_row,
    "live record": nothing_row,
    "node id": nothing_row,
    "cluster": cluster_row,
    "producer ids": ids_row,
    "slot": slot_row,
    "group": group_row,
    "offset": offset_row,
    "job run": job_row,
    "user": user_row,
    "segment": unread_row,
    "index": nothing_row,
    "manifest": unread_row,
    "snapshot": nothing_row,
    "lag history": history_row,
}
OBJECTS = {"segment", "index", "manifest", "snapshot", "lag history"}
WRITTEN_ANEW = {"slot", "job run", "offset", "producer ids", "group", "epoch floor", "live record", "node id"}
"""The rows whose value is created again, or may be created again."""
NEED_MANIFESTS = {"head", "meta", "manifest", "segment", "snapshot"}


def victim_of(scene: Scene, row: Row, way: str) -> Victim:
    victim = Victim(scene, f"victim-{row.name.replace(' ', '-')}-{way}")
    victim.fill(FILL if row.name in NEED_MANIFESTS else 1)
    is_told("OffsetCommit", NONE, victim.commits)
    is_told("AlterUserScramCredentials", NONE, victim.enrolls)
    return victim


def test_every_row_of_the_table_is_tried() -> None:
    assert list(CHECKS) == [row.name for row in ROWS]


CASES = [(row, way) for row in ROWS for way in row.ways()]


@pytest.mark.parametrize(
    ("row", "way"), CASES, ids=[f"{row.name.replace(' ', '-')}-{way}" for row, way in CASES]
)
def test_damage_does_what_its_row_says_and_nobody_else_notices(scene: Scene, row: Row, way: Damage) -> None:
    victim = victim_of(scene, row, way)
    with bystanding(scene, victim.topic):
        if row.name in OBJECTS:
            damage_objects(victim, row, way, victim.topic_id().hex())
            CHECKS[row.name](victim, way)
            return
        done = damage_key(victim, row, way)
        CHECKS[row.name](victim, way)
        if way is not Damage.MISSING and (
            row.name not in WRITTEN_ANEW or (row.name, way) == ("slot", "newer")
        ):
            assert done.stands(), "it was written over"
        if row.name == "group":
            done.heal()
            claim_again(victim)
        elif row.name not in ("job run", "offset") and not (row.name == "slot" and way is not Damage.NEWER):
            done.heal()
        is_told("Produce, once it is mended,", NONE, victim.sends)
        is_told("OffsetCommit, once it is mended,", NONE, victim.commits)


def victim_in_a_slot_of_its_own(scene: Scene, row: Row, others: Sequence[Victim]) -> Victim:
    taken = {own_slot(other) for other in others}
    for number in range(64):
        victim = Victim(scene, f"victim-{row.name.replace(' ', '-')}-restart-{number}")
        if own_slot(victim) not in taken:
            victim.fill(1)
            is_told("OffsetCommit", NONE, victim.commits)
            return victim
    raise AssertionError("every slot has a group")


def snapshot_after_a_claim(victim: Victim, _: Damage) -> None:
    is_told("Produce", STORAGE, victim.sends)
    is_told("Fetch", NONE, victim.reads)


def test_all_is_damaged_and_all_is_restarted_and_the_rest_is_served(scene: Scene) -> None:
    """The next instance does not end either, although it starts with the value that is unreadable."""
    rows = {
        row.name: row for row in ROWS if row.name not in ("live record", "node id")
    }  # they end with a process
    victims = {name: victim_of(scene, row, "restart") for name, row in rows.items() if name != "slot"}
    victims["slot"] = victim_in_a_slot_of_its_own(scene, rows["slot"], list(victims.values()))
    topic_ids = {name: victim.topic_id().hex() for name, victim in victims.items()}
    ways = {name: Damage.NEWER if name == "slot" else Damage.UNREADABLE for name in rows}
    done = {name: damage_key(victims[name], rows[name], ways[name]) for name in rows if name not in OBJECTS}
    assert scene.cluster.stop() == 0
    for name in OBJECTS:
        damage_objects(victims[name], rows[name], ways[name], topic_ids[name])
    scene.cluster.start()
    ids_row(victims["producer ids"], Damage.UNREADABLE)
    done.pop("producer ids").heal()
    checks = {**CHECKS, "snapshot": snapshot_after_a_claim}
    with bystanding(scene, "of-a-restart"):
        for name in rows:
            if name != "producer ids":
                checks[name](victims[name], ways[name])
    for name in ("topic", "head", "meta", "epoch floor", "cluster", "slot", "user"):
        assert done[name].stands(), f"{name} was written over"


# -- bundles ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """No slice is kept in memory, where its owner could fold or settle it from."""
    env = {
        "KAFSCALE_SETTLE_KEEP_BYTES": "0",
        "KAFSCALE_BUNDLES_EVERY_MS": "1000",
    }
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("bundles") / "data", scale={"fetch": 2}, env=env)
    cluster.start()
    yield Scene(cluster)
    cluster.kill()


BUNDLE_CHECKS: dict[str, tuple[tuple[ErrorCode, ErrorCode], str]] = {
    "deleted": ((STORAGE, STORAGE), "is committed and not in the store"),
    "replaced": ((STORAGE, STORAGE), "is not the object that was committed"),
    "cut": ((STORAGE, STORAGE), "is not the object that was committed"),
    "slice": ((NONE, STORAGE), "checksum does not match"),
    "directory": ((NONE, NONE), "its directory cannot be read"),
    "foreign": ((NONE, NONE), "cannot be read as a bundle"),
}
"""What Fetch of each partition answers, and a part of fsck's sentence."""


def test_every_row_of_the_table_of_bundles_is_tried() -> None:
    assert list(BUNDLE_CHECKS) == list(DAMAGES) == [row.name for row in BUNDLE_ROWS]


@pytest.mark.parametrize("row", BUNDLE_ROWS, ids=[row.name for row in BUNDLE_ROWS])
def test_damage_of_a_bundle_does_what_its_row_says(bundled: Scene, row: BundleRow) -> None:
    victim = BundleVictim.fill(bundled, f"bundle-{row.name}")
    codes, sentence = BUNDLE_CHECKS[row.name]
    with bystanding(bundled, victim.topic):
        lost_before = victim.lost()
        with DAMAGES[row.name](victim) as key:
            for number in PARTITIONS:
                is_told(f"Fetch of {number}", codes[number], partial(victim.reads, number))
                assert victim.sends(number) == NONE
            assert (victim.lost() > lost_before) == (STORAGE in codes)
            assert is_logged(bundled, "fetch", "committed segment lost", key) == (STORAGE in codes)
            checked = bundled.cluster.fsck()
            assert any(key in line and sentence in line for line in checked.stdout.splitlines()), checked
            assert (checked.returncode == 0) == (row.name == "foreign"), checked
            if row.name == "foreign":
                skipped = partial(is_logged, bundled, "upkeep", "bundle skipped by the sweep", key)
                until("the sweep skips it", skipped, 60)
        for number in PARTITIONS:
            is_told(f"Fetch of {number}, once it is restored,", NONE, partial(victim.reads, number))


def test_a_claim_that_must_replay_a_lost_bundle_waits_for_it(bundled: Scene) -> None:
    victim = BundleVictim.fill(bundled, "bundle-claimed")
    bundled.cluster.kill()
    with DAMAGES["deleted"](victim) as key:
        bundled.cluster.start()
        for number in PARTITIONS:
            is_told(f"Produce to {number}", STORAGE, partial(victim.sends, number))
        assert is_logged(bundled, "produce", "committed data is damaged", key)
    for number in PARTITIONS:
        is_told(f"Produce to {number}, once it is restored,", NONE, partial(victim.sends, number))
