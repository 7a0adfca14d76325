"""The state of the model. Every value is immutable and hashable, so that equal states are found again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple, TypeVar

T = TypeVar("T")

PARTITIONS = (0, 1)
INSTANCES = (0, 1)
OWN_OBJECT = 90
"""In the place of a bundle's number: the entry is a segment of its own."""
NOBODY = 99
"""In the place of an owner or a creator: none that lives or will live."""

Values = tuple[int, ...]
"""Records. Each value is written once in the whole run; the offset of a record is its place in its log."""


class Entry(NamedTuple):
    """An entry of a tail or of a manifest."""

    bundle: int
    epoch: int
    values: Values
    plan: int = 0
    """Of a segment that a settle plan wrote: the number of the plan. With the values it makes the etag."""

    @property
    def is_slice(self) -> bool:
        return self.bundle != OWN_OBJECT


class Log(NamedTuple):
    """The value of a head, with the segments that its manifests list."""

    epoch: int
    owner: int
    next: int
    tail: tuple[Entry, ...]
    manifest: tuple[Entry, ...]

    @property
    def settled_end(self) -> int:
        """The offset at which the tail begins."""
        return sum(len(entry.values) for entry in self.manifest)

    def placed(self) -> Iterator[tuple[int, Entry]]:
        """The tail, each entry with its base offset."""
        return with_bases(self.tail, self.settled_end)

    def segments(self) -> Iterator[tuple[int, Entry]]:
        """The segments of the manifests and of the tail, each with its base offset."""
        yield from with_bases(self.manifest, 0)
        yield from ((base, entry) for base, entry in self.placed() if not entry.is_slice)

    def records(self) -> Iterator[int]:
        for entry in (*self.manifest, *self.tail):
            yield from entry.values

    def names(self, bundle: int) -> bool:
        return any(entry.bundle == bundle for entry in self.tail)


def with_bases(entries: Iterable[Entry], base: int) -> Iterator[tuple[int, Entry]]:
    for entry in entries:
        yield base, entry
        base += len(entry.values)


class Head(NamedTuple):
    """A head as etcd holds it."""

    revision: int
    log: Log


class Slice(NamedTuple):
    partition: int
    epoch: int
    base: int
    values: Values

    @property
    def end(self) -> int:
        return self.base + len(self.values)


class Bundle(NamedTuple):
    creator: int
    slices: tuple[Slice, ...]
    present: bool = False
    put_pending: bool = True


class Etag(NamedTuple):
    """A hash of the content. A settled segment has random bits of its plan in its header, so that no two plans write
    equal bytes; a direct segment has none."""

    values: Values
    plan: int = 0


class Segment(NamedTuple):
    """An object under a segment's name. `epoch`: of who wrote it; `of`: of its records."""

    partition: int
    base: int
    epoch: int
    etag: Etag
    of: int


class Flight(NamedTuple):
    """Records that were sealed and are not committed."""

    bundle: int
    base: int
    values: Values
    fresh: Values
    """The values without those that a fold repeats."""
    stored: bool = False

    @property
    def is_fold(self) -> bool:
        return len(self.values) > len(self.fresh)


class Kind(Enum):
    COMMIT = auto()
    SETTLE = auto()
    CHECKPOINT = auto()


class Sent(NamedTuple):
    """The transaction of a partition that is in flight."""

    kind: Kind
    log: Log
    flights: tuple[Flight, ...] = ()


class Plan(NamedTuple):
    """A settle plan: one run of slices becomes one segment."""

    stored: bool
    epoch: int
    base: int
    etag: Etag
    seen: Log | None = None
    """The log as it was when the plan was made; only SETTLE_BLIND looks at it."""

    @property
    def end(self) -> int:
        return self.base + len(self.etag.values)


class Writer(NamedTuple):
    """What an owner knows of its partition."""

    head: Head
    flights: tuple[Flight, ...] = ()
    sent: Sent | None = None
    plan: Plan | None = None

    def holds(self, bundle: int) -> bool:
        """Whether this owner may still commit a slice of the bundle."""
        sent = self.sent.flights if self.sent else ()
        return any(flight.bundle == bundle for flight in (*self.flights, *sent))


class Condition(Enum):
    ABSENT = auto()
    ANY = auto()


class SegmentPut(NamedTuple):
    """A PUT of a segment on its way; `condition` may be the etag that must be there, for an If-Match."""

    partition: int
    base: int
    condition: Condition | Etag
    epoch: int
    etag: Etag
    settles: bool
    of: int


class Change(NamedTuple):
    """One compare-and-swap of a request."""

    partition: int
    revision: int
    log: Log


class Request(NamedTuple):
    """A request to etcd on its way. `repeated`: an earlier delivery lost its answer."""

    sender: int
    changes: tuple[Change, ...]
    repeated: bool = False


class BundleDeletion(NamedTuple):
    """A DELETE of a bundle on its way."""

    bundle: int


class SegmentDeletion(NamedTuple):
    """A DELETE of a segment on its way, with an If-Match."""

    partition: int
    base: int
    etag: Etag


class Counts(NamedTuple):
    """What has happened so far of what a configuration bounds. `next_value` is the first unused record."""

    next_value: int = 1
    claims: int = 0
    crashes: int = 0
    plans: int = 0
    repeats: int = 0
    views: int = 0
    resets: int = 0
    losses: int = 0


class View(NamedTuple):
    """An old head in the hands of a reader: the bundles and the segments that it may still ask for."""

    partition: int
    bundles: tuple[int, ...]
    segments: tuple[tuple[int, Etag], ...]


class State(NamedTuple):
    heads: tuple[Head, ...]
    bundles: tuple[Bundle, ...] = ()
    segments: frozenset[Segment] = frozenset()
    puts: frozenset[SegmentPut] = frozenset()
    requests: frozenset[Request] = frozenset()
    deletions: frozenset[BundleDeletion | SegmentDeletion] = frozenset()
    writers: tuple[tuple[Writer | None, ...], ...] = ((None, None), (None, None))
    boots: tuple[int, ...] = (0, 0)
    acked: int = 0
    failed: int = 0
    """Sets of values, as bits."""
    counts: Counts = Counts()
    reader: View | None = None
    snapshot: tuple[Head, ...] | None = None
    """The heads as a snapshot of etcd has them. A witness of the history is made behind it."""
    went_back: bool = False
    """etcd was restored from it, so it lacks that witness, and the roll-forward is still to come."""

    @property
    def living(self) -> tuple[int, int]:
        """The ids of the two instances; an instance that starts again has another."""
        return 2 * self.boots[0], 1 + 2 * self.boots[1]

    def is_named(self, bundle: int) -> bool:
        return any(head.log.names(bundle) for head in self.heads)

    def with_writer(self, instance: int, partition: int, writer: Writer | None) -> State:
        mine = replaced(self.writers[instance], partition, writer)
        return self._replace(writers=replaced(self.writers, instance, mine))

    def with_bundle(self, number: int, bundle: Bundle) -> State:
        return self._replace(bundles=replaced(self.bundles, number, bundle))

    def failing(self, flights: Iterable[Flight]) -> State:
        """The producers of these flights get an error."""
        return self._replace(failed=self.failed | bits(flights))

    def acking(self, flights: Iterable[Flight]) -> State:
        return self._replace(acked=self.acked | bits(flights))

    def counting(self, **counts: int) -> State:
        return self._replace(counts=self.counts._replace(**counts))


Moves = Iterator[tuple[str, State]]


class Limits(NamedTuple):
    """A configuration: how often each thing may happen."""

    records: int
    claims: int = 0
    crashes: int = 0
    plans: int = 1
    repeats: int = 0
    views: int = 0
    resets: int = 0
    losses: int = 0
    folds: bool = False
    direct: bool = False


class Mutation(Enum):
    """What is taken away from the protocol. Each must lead to a state or a step that breaks a law."""

    NO_FENCE = "the commit compares next, not the revision of the head"
    AMBIG_FAIL = "a lost answer of etcd is reported as a failure"
    ACK_ALL = "one partition's success acknowledges the whole bundle"
    OUT_OF_ORDER = "a slice is committed before an earlier slice of its partition"
    REUSE_OFFSET = "the offsets of a bundle PUT of unknown outcome are given to other records"
    ACK_UPLOADED = "records are acknowledged when the bundle is stored, before the commit"
    GC_UNNAMED = "the sweep deletes what no head names now, although it may still be committed"
    GC_BY_BASE = "a slice counts as dead when next has passed its base, not its end"
    GC_MINE_ONLY = "the creator looks only at its own partitions, not at those that have moved"
    DELETE_AT_PLAN = "slices are given up when their segment is stored, not when it is swapped in"
    NO_GRACE = "a bundle is deleted while a reader has a view that names it"
    NO_BUMP = "the sweep does not end the epoch of a dead owner, so nothing ends what that owner left"
    SETTLE_BLIND = "the swap writes the tail as it was when the plan was made"
    EQUAL_PLANS = "two settle plans of the same records write equal bytes, which have equal etags"
    SETTLE_UNCOND = "the settled segment is PUT without a condition"
    SETTLE_ANY = "any object at the name is replaced, also that of a newer epoch"
    ORPHANS_TO_NEXT = "the collector of orphans goes up to next, not to the first slice of the tail"
    FOLD_OVER_PLAN = "a slice folds entries that a settle plan is moving"
    DELETE_UNVERIFIED = "deleters do not look whether etcd went back"
    CLAIM_UNFENCED = "claims, and the sweep's new epochs, do not compare the witness of etcd's history"
    COMMIT_UNFENCED = "commits do not compare the witness of etcd's history"


def replaced(of: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*of[:index], value, *of[index + 1 :])


def bits(flights: Iterable[Flight]) -> int:
    return sum(1 << value for flight in flights for value in flight.fresh)
