"""Bundles that are lost or damaged: what each kind of damage does, as the second table of the docs says it.

`BUNDLE_ROWS` is the only list: `docs/protocol/damage.md` is compared with it (`checkers/test_damage_page.py`), and
`scenarios/test_damage.py` does the damage of each row. A victim has two partitions with slices in one bundle.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafscale.log.heads import Seg
from kafscale.storage.keys import BundleId
from kafscale.wire.errors import ErrorCode

from e2e.harness.damage import Scene
from e2e.harness.inside import metric
from e2e.harness.requests import ask_fetch, ask_produce, batch, create, produce_body
from e2e.harness.services import until

NONE = ErrorCode.NONE
PARTITIONS = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRow:
    """`name` is the name in tests."""

    name: str
    what: str
    clients: str
    operator: str
    remedy: str


BUNDLE_ROWS: Sequence[BundleRow] = (
    BundleRow(
        name="deleted",
        what="A bundle that a head names was deleted",
        clients="Fetch answers KAFKA_STORAGE_ERROR for the offsets of its slices, in each partition that has one. "
        "Produce continues. If a claim must replay a slice, Produce answers KAFKA_STORAGE_ERROR.",
        operator="fetch logs `committed segment lost`, `kafscale_fetch_lost_segments_total` rises, "
        "KafscaleSegmentsLost. After such a claim: `committed data is damaged`, "
        "`kafscale_produce_damaged_partitions_total`, KafscalePartitionDamaged. "
        "fsck: `is committed and not in the store`.",
        remedy="Restore the object's version with the etag that fsck names, soon; or delete the records up to the end "
        "of its slices: see below.",
    ),
    BundleRow(
        name="replaced",
        what="Another program wrote to the key of such a bundle",
        clients="As deleted: the etag is not the committed one.",
        operator="As deleted. fsck: `is not the object that was committed`.",
        remedy="As deleted. Find the program.",
    ),
    BundleRow(
        name="cut",
        what="Such a bundle was cut",
        clients="As deleted, for all of its slices.",
        operator="As deleted or as replaced. `kafscale dump` shows which slices are left.",
        remedy="As deleted.",
    ),
    BundleRow(
        name="slice",
        what="A byte of a slice changed below the store, so the etag is the committed one",
        clients="As deleted, for that slice. The other partitions of the bundle are not affected.",
        operator="As deleted. fsck: `checksum does not match` with the key and the position of the slice. produce "
        "logs `slice damaged` if it reads the slice to settle it.",
        remedy="As deleted. Check the disks of the store.",
    ),
    BundleRow(
        name="directory",
        what="A byte of the directory changed below the store",
        clients="Nothing: heads say where slices are.",
        operator="fsck: `its directory cannot be read`. If the instance that wrote the bundle has ended, the bundle "
        "remains after its slices are settled, and upkeep logs `bundle skipped by the sweep`.",
        remedy="Check the disks of the store. Delete the bundle when fsck lists it as `UNKNOWN` and it is a day old.",
    ),
    BundleRow(
        name="foreign",
        what="An object with the name of a bundle is no bundle, and no head names it",
        clients="Nothing.",
        operator="fsck: a line `UNKNOWN`, which is no problem. upkeep logs `bundle skipped by the sweep` in each run.",
        remedy="Find the program that writes there, and move the object away.",
    ),
)

HEAD = "| damage | what clients see | what the operator sees | what to do |\n|---|---|---|---|\n"


def bundle_table() -> str:
    """The table of the docs."""
    rows = (f"| {row.what} | {row.clients} | {row.operator} | {row.remedy} |\n" for row in BUNDLE_ROWS)
    return HEAD + "".join(rows)


@dataclass(frozen=True, slots=True)
class BundleVictim:
    """The last slices of both partitions are in one bundle."""

    scene: Scene
    topic: str
    segs: tuple[Seg, ...]

    @classmethod
    def fill(cls, scene: Scene, topic: str) -> BundleVictim:
        with scene.raw() as raw:
            assert create(raw, topic, partitions=len(PARTITIONS)) == NONE

        def is_shared() -> bool:
            if any(sends(scene, topic, *PARTITIONS)):
                return False
            heads = scene.cluster.inside().heads(topic)
            return len({heads[number].tail[-1].bundle for number in PARTITIONS} - {b""}) == 1

        until("both partitions have a slice in one bundle", is_shared)
        heads = scene.cluster.inside().heads(topic)
        return cls(scene, topic, tuple(heads[number].tail[-1] for number in PARTITIONS))

    @property
    def key(self) -> str:
        return self.scene.keys.bundle_key(BundleId(self.segs[0].bundle))

    @property
    def path(self) -> Path:
        return self.scene.cluster.data_dir / "objects" / self.key

    @property
    def aside(self) -> Path:
        """Where a deleted bundle is kept."""
        return self.scene.cluster.data_dir / f"{self.topic}.kfb"

    def reads(self, partition: int) -> int:
        """Of its slice in the bundle."""
        with self.scene.raw() as raw:
            (part,) = ask_fetch(raw, topic=self.topic, part=partition, offset=self.segs[partition].base)
            return part.error_code

    def sends(self, partition: int) -> int:
        (code,) = sends(self.scene, self.topic, partition)
        return code

    def lost(self) -> float:
        """Segments that the fetch instances counted as lost."""
        instances = self.scene.cluster.inside().instances("fetch")
        name = "kafscale_fetch_lost_segments_total"
        return sum(sum(metric(each.http_address, name).values()) for each in instances)


def is_logged(scene: Scene, role: str, event: str, key: str) -> bool:
    """Whether an instance logged the event with this key in a field."""
    logs = (scene.cluster.data_dir / "run" / "log").glob(f"{role}*.log")
    lines = (line for log in logs for line in log.read_text(errors="replace").splitlines())
    return any(f'"{event}"' in line and key in line for line in lines)


def sends(scene: Scene, topic: str, *partitions: int) -> list[int]:
    """One request with a record for each partition."""
    with scene.raw() as raw:
        body = produce_body(*((topic, number, batch()) for number in partitions))
        return [part.error_code for part in ask_produce(raw, body)]


# -- the damage, undone at the end; each yields the key of the object ------------------------------


@contextmanager
def deleted(victim: BundleVictim) -> Iterator[str]:
    os.rename(victim.path, victim.aside)  # with the extended attribute that has the etag
    yield victim.key
    os.replace(victim.aside, victim.path)


@contextmanager
def replaced(victim: BundleVictim) -> Iterator[str]:
    with deleted(victim):
        victim.scene.write_object(victim.key, b"of another program")
        yield victim.key


@contextmanager
def cut(victim: BundleVictim) -> Iterator[str]:
    with deleted(victim):
        victim.scene.write_object(victim.key, victim.aside.read_bytes()[: victim.segs[1].position + 20])
        yield victim.key


def slice_flipped(victim: BundleVictim) -> AbstractContextManager[str]:
    """Only that of partition 1."""
    return flipped(victim, victim.segs[1].position + 100)


def directory_flipped(victim: BundleVictim) -> AbstractContextManager[str]:
    return flipped(victim, max(seg.position + seg.size for seg in victim.segs) + 30)


@contextmanager
def flipped(victim: BundleVictim, at: int) -> Iterator[str]:
    """As a bad disk does it: size and time of the file are the same, so the store has the same etag."""
    _flip(victim.path, at)
    yield victim.key
    _flip(victim.path, at)


def _flip(path: Path, at: int) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def foreign(victim: BundleVictim) -> Iterator[str]:
    """So old that upkeep looks at it."""
    key = victim.scene.keys.bundle_key(BundleId(bytes(16)))
    victim.scene.write_object(key, b"of another program")
    yield key
    victim.scene.delete_object(key)


DAMAGES: Mapping[str, Callable[[BundleVictim], AbstractContextManager[str]]] = {
    "deleted": deleted,
    "replaced": replaced,
    "cut": cut,
    "slice": slice_flipped,
    "directory": directory_flipped,
    "foreign": foreign,
}
