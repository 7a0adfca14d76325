"""The bundles of an instance: seals what the partitions want, stores it, and reports to their writers.

`gather` decides which partitions are sealed and when, `deletion` which bundles may go, `puts` stores them. If a bundle
cannot be stored, the partitions in it end their epochs, because their offsets cannot be used again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import structlog
from kafscale.log.bundle import BUNDLE_ID_RANDOM_BYTES, BuiltBundle, Slice, build_bundle, new_bundle_id
from kafscale.log.heads import Head, Seg
from kafscale.produce.bundles.deletion import OwnBundles
from kafscale.produce.bundles.gather import Gather, Sealing
from kafscale.produce.log.flight import Flight, InBundle
from kafscale.produce.log.model import NEVER, Instant, PartitionId, State
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.pump import Alarm, Driven
from kafscale.produce.puts import BundlePuts
from kafscale.produce.requests import RequestSpans, lasting
from kafscale.produce.shared_fills import BundleFills
from kafscale.runtime.clock import Clock
from kafscale.runtime.tracing import Span
from kafscale.storage.keys import BundleId, TopicId
from kafscale.storage.system import random_bytes

log = structlog.get_logger(__name__)

_OVER = (State.CLOSING, State.CLOSED)
"""States of a writer whose epoch is over."""


class Bundled(Driven, Protocol):
    """A partition, as bundles know it."""

    id: PartitionId
    key: tuple[TopicId, int]
    writer: PartitionWriter | None
    spans: RequestSpans


@dataclass(frozen=True, slots=True)
class Member:
    """A partition in a bundle, with the writer that sealed its slice."""

    partition: Bundled
    writer: PartitionWriter
    flight: Flight


class Bundler:
    """Shared by the partitions of an instance; the pump drives it after them."""

    def __init__(
        self,
        gather: Gather[Bundled],
        own: OwnBundles,
        *,
        puts: BundlePuts,
        clock: Clock,
        metrics: ProduceMetrics,
        fills: BundleFills,
        begin: Callable[[Coroutine[Any, Any, None]], None],
        touch: Callable[[Bundled], None],
        wake: Callable[[], None],
        suspect: Callable[[str], None],
    ) -> None:
        self._gather = gather
        self._suspect = suspect
        self._own = own
        self._puts = puts
        self._clock = clock
        self._metrics = metrics
        self._begin = begin
        self._touch = touch
        self._fills = fills
        self._undecided: defaultdict[Bundled, dict[bytes, int]] = defaultdict(dict)  # bundle → number
        self._decided: list[tuple[int, Bundled]] = []  # since the last drive
        self._heads: dict[Bundled, Head] = {}  # as `own` knows them
        self._alarm = Alarm(wake)  # the pump drives first what changed meanwhile, so no want is out of date

    # --- what happens ------------------------------------------------------------------------

    def drive(self, touched: Iterable[Bundled], now: Instant) -> None:
        """After the partitions were driven: note what they want, and seal what is due."""
        for partition in touched:
            writer = partition.writer
            if writer is None or writer.state in _OVER:  # late answers touch what `stopped` has forgotten
                continue
            if self._heads.get(partition) is not writer.head:
                self._heads[partition] = writer.head
                proof = self._own.changed(partition.key, writer.head, now.mono_ms)
                if proof is not None:
                    self._suspect(proof)
            self._gather.want(partition, writer.wants())
            self._pass_over(partition, writer.without_room())
        self._end_flights(now)
        while (sealing := self._gather.take(now.mono_ms)) is not None:
            self._seal(sealing, now)
        due_ms = self._gather.due_ms(now.mono_ms)
        if due_ms < NEVER:
            self._alarm.arm(due_ms, now.mono_ms)

    def committed(self, partition: Bundled, segments: Iterable[Seg], now: Instant) -> None:
        for seg in segments:
            self._own.acknowledged(partition.key, BundleId(seg.bundle))
            self._fills.committed(seg.bundle)
            self._decide(partition, seg.bundle)

    def stopped(self, partition: Bundled, now: Instant) -> None:
        """The epoch of its writer is over."""
        self._gather.want(partition, None)
        self._heads.pop(partition, None)
        for bundle_id in list(self._undecided.get(partition, ())):
            self._fills.abandoned(bundle_id)
            self._decide(partition, bundle_id)

    def _decide(self, partition: Bundled, bundle_id: bytes) -> None:
        number = self._undecided.get(partition, {}).pop(bundle_id, None)
        if number is not None:
            self._decided.append((number, partition))
        if not self._undecided.get(partition):
            self._undecided.pop(partition, None)

    def _pass_over(self, partition: Bundled, bundles: Iterable[bytes]) -> None:
        """Slices that are stored and wait for settling to make room in the tail. That may take for ever, and no other
        partition waits for it. `wants` seals no such slice; this is the second defence."""
        numbers = self._undecided.get(partition, {})
        self._decided += [(numbers[each], partition) for each in bundles if each in numbers]

    def _end_flights(self, now: Instant) -> None:
        """After the wants: what the partitions of a flight hold now was waiting for it."""
        decided, self._decided = self._decided, []
        for number, partition in decided:
            self._gather.decided(number, partition, now.mono_ms)

    @property
    def head_tokens_waiting(self) -> int:
        return self._gather.head_tokens_waiting(self._clock.now_ms())

    @property
    def marker_bundles(self) -> int:
        return self._gather.marker_bundles

    # --- sealing -----------------------------------------------------------------------------

    def _now(self) -> Instant:
        return Instant(self._clock.now_ms(), self._clock.wall_ms())

    def _seal(self, sealing: Sealing[Bundled], now: Instant) -> None:
        members = []
        for partition in sealing.keys:
            assert partition.writer is not None, partition
            members.append(Member(partition, partition.writer, partition.writer.seal_slice(now)))
        bundle_id = new_bundle_id(now.wall_ms, random_bytes(BUNDLE_ID_RANDOM_BYTES))
        built = build_bundle(bundle_id, [_slice_of(each) for each in members], now.wall_ms)
        self._own.sealed(bundle_id, built.entries)
        for each in members:
            self._undecided[each.partition][bundle_id] = sealing.number
        self._metrics.bundle_requests.observe(sealing.requests)
        self._metrics.gather_seconds.observe(sealing.waited.ms / 1000)
        self._metrics.gathers_in_vain.inc(sealing.waited.in_vain)
        for span in _traced(members):
            span.event("sealed")
        self._begin(self._upload(members, built, now.mono_ms))

    async def _upload(self, members: list[Member], built: BuiltBundle, sealed_ms: int) -> None:
        outcome = await self._puts.stored(built, partial(self._span, members, built.id))
        now = self._now()
        if isinstance(outcome, str):
            self._own.answered(built.id, now.mono_ms)
            self._metrics.bundle_bytes.observe(built.size)
            self._metrics.bundle_slices.observe(len(members))
            self._metrics.bundle_seconds.observe((now.mono_ms - sealed_ms) / 1000)
            undecided = sum(built.id in self._undecided.get(each.partition, ()) for each in members)
            self._fills.uploaded(built.id, self._puts.key(built.id), outcome, built.body, undecided)
        else:
            self._own.lost(built.id)
        for each, entry in zip(members, built.entries, strict=True):
            if isinstance(outcome, str):
                each.writer.slice_stored(entry.base, built.id, outcome, entry.position, now)
            else:
                each.writer.slice_failed(entry.base, outcome, now)
            self._touch(each.partition)

    def _span(self, members: Iterable[Member], bundle_id: BundleId) -> AbstractContextManager[None]:
        return lasting("PUT bundle", _traced(members), self._puts.key(bundle_id))


def _traced(members: Iterable[Member]) -> list[Span]:
    """Of the requests whose records are in the bundle, each once."""
    return list(dict.fromkeys(span for each in members for span in each.partition.spans.of((each.flight,))))


def _slice_of(member: Member) -> Slice:
    home, id_ = member.flight.home, member.partition.id
    assert isinstance(home, InBundle), "a slice was sealed"
    assert home.built is not None, "it is not stored yet"
    return Slice(
        topic_id=id_.topic_id,
        partition=id_.partition,
        leader_epoch=member.writer.head.epoch,
        segment=home.built,
        min_ts=member.flight.min_ts,
        max_ts=member.flight.max_ts,
        transactional=member.flight.transactional,
    )
