"""The uploads of one partition: flights in offset order, and the conditional PUTs of those with objects of their own.

The name of a segment depends on its base offset alone, so writers of several epochs may meet at one. The epoch decides:
`If-None-Match` at first; if an object is there, HEAD shows whose it is. Ours (by attempt id): an earlier PUT of ours
won. An older epoch's: an orphan that can never be committed any more, replaced with `If-Match` of exactly that etag.
Our epoch's or a newer one's: we are fenced. An unknown program's: refuse, a person must look. Every loop
412 → HEAD → PUT needs another foreign request to arrive in between, so it ends. From the second turn on, the PUT waits
like one whose outcome is unknown: a store that takes no condition for fulfilled gets fewer requests, and not more.

A slice has no request of its own. Its bundle is uploaded by the instance, which reports `stored`.

`Claimant` says whose object has the name of a segment. Objects carry the epoch and the attempt that wrote them as
metadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from kafscale.produce.log.flight import Flight, InBundle, Objects, Stage, Upload
from kafscale.produce.log.model import (
    NEVER,
    Action,
    HeadObject,
    Instant,
    Limits,
    Part,
    PutObject,
    StepDownReason,
)
from kafscale.storage.keys import META_ATTEMPT, META_EPOCH, META_LAST, META_TOPIC_ID
from kafscale.storage.objects import IfAbsent, IfMatch


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """What HEAD saw at a name: `ObjectInfo` of the store, with our metadata parsed.

    `epoch` and `attempt` are None on an object that no KafScale wrote. `from_metadata` makes one.
    """

    etag: str
    size: int
    epoch: int | None
    attempt: bytes | None

    @staticmethod
    def from_metadata(etag: str, size: int, metadata: Mapping[str, str]) -> FoundObject:
        try:
            epoch = int(metadata[META_EPOCH])
            attempt = bytes.fromhex(metadata[META_ATTEMPT])
        except (KeyError, ValueError):
            return FoundObject(etag=etag, size=size, epoch=None, attempt=None)
        return FoundObject(etag=etag, size=size, epoch=epoch, attempt=attempt)


class Claimant(Enum):
    NOBODY = auto()
    ME = auto()  # this attempt
    EPOCH = auto()  # another attempt of this epoch
    OLDER = auto()
    NEWER = auto()
    FOREIGN = auto()


def claimant_of(seen: FoundObject | None, attempt: bytes, epoch: int) -> Claimant:
    if seen is None:
        return Claimant.NOBODY
    if seen.epoch is None or seen.attempt is None:
        return Claimant.FOREIGN
    if seen.attempt == attempt:
        return Claimant.ME
    if seen.epoch == epoch:
        return Claimant.EPOCH
    return Claimant.OLDER if seen.epoch < epoch else Claimant.NEWER


_PARTS = tuple(Part)
_BACKOFF_DOUBLINGS_MAX = 10
_ABSENT = IfAbsent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What of a failed attempt shows that the store is there: such time does not count as time without it."""

    waited_ms: int = 0  # for its place, while the store answered others
    moved: bool = False  # bytes of it went until its time was over


TRIED = Tried()


class Uploads:
    """The pipeline: flights in offset order, from sealed to uploaded, until the commit takes them."""

    def __init__(self, epoch: int, topic_id: bytes, actions: list[Action]) -> None:
        self.flights: deque[Flight] = deque()
        self.bytes_held = 0  # of the flights whose bytes may still be needed
        self._epoch = epoch
        self._topic_id = topic_id.hex()
        self._actions = actions

    def __iter__(self) -> Iterator[Flight]:
        return iter(self.flights)

    def __len__(self) -> int:
        return len(self.flights)

    def add(self, flight: Flight) -> None:
        self.flights.append(flight)
        self.bytes_held += flight.bytes

    def clear(self) -> None:
        self.flights.clear()
        self.bytes_held = 0

    def start(self, pipeline_max: int) -> None:
        """Begin with every flight that has a place in the pipeline."""
        for position, flight in enumerate(self.flights):
            if position >= pipeline_max:
                return
            if isinstance(flight.home, Objects) and not flight.home.started:
                for part in _PARTS:
                    self._put(flight, flight.home, part)

    def done(self, base: int, part: Part, etag: str) -> None:
        found = self._find(base, part, Stage.PUTTING)
        if found is not None:
            self._settle(*found, part, etag)

    def _settle(self, flight: Flight, home: Objects, part: Part, etag: str) -> None:
        home.upload(part).done(etag)
        if home.uploaded:
            self._release(flight)

    def stored(self, base: int, bundle: bytes, etag: str, position: int) -> None:
        """The bundle with the slice at this offset is in the store."""
        for flight in self.flights:
            if flight.base == base and isinstance(flight.home, InBundle):
                flight.home.stored(bundle, etag, position)
                self._release(flight)

    def _release(self, flight: Flight) -> None:
        self.bytes_held -= flight.bytes

    def holds_slice(self, base: int) -> bool:
        """False once it was given up with the epoch."""
        return any(each.base == base and isinstance(each.home, InBundle) for each in self.flights)

    def conflict(self, base: int, part: Part) -> None:
        found = self._find(base, part, Stage.PUTTING)
        if found is not None:
            found[1].upload(part).answered()
            self._ask(*found, part)

    def found(
        self, base: int, part: Part, seen: FoundObject | None, limits: Limits, now: Instant
    ) -> StepDownReason | None:
        """HEAD's answer after a failed condition. A reason: this writer must stop."""
        at = self._find(base, part, Stage.ASKING)
        if at is None:
            return None
        flight, home = at
        upload = home.upload(part)
        upload.answered()
        claimant = self.claimant(seen, home.attempt)
        if claimant in (Claimant.EPOCH, Claimant.NEWER):
            return StepDownReason.FENCED
        if claimant is Claimant.FOREIGN:
            return StepDownReason.FOREIGN_OBJECT
        if claimant is Claimant.ME:
            assert seen is not None
            self._settle(flight, home, part, seen.etag)
        else:
            upload.condition = _ABSENT if seen is None else IfMatch(seen.etag)
            upload.turns += 1
            if upload.turns == 1:
                self._put(flight, home, part)
            else:
                upload.stage, upload.tries = Stage.PUT_LATER, upload.turns - 2
                _wait(upload, home.attempt, limits, now)
        return None

    def claimant(self, seen: FoundObject | None, attempt: bytes) -> Claimant:
        return claimant_of(seen, attempt, self._epoch)

    def unknown(
        self, base: int, part: Part, limits: Limits, now: Instant, tried: Tried = TRIED
    ) -> StepDownReason | None:
        """Neither done nor refused: the same request again, later. A reason: it has gone on too long."""
        at = self._find(base, part, Stage.PUTTING, Stage.ASKING)
        if at is None:
            return None
        _, home = at
        upload = home.upload(part)
        upload.stage = Stage.PUT_LATER if upload.stage is Stage.PUTTING else Stage.ASK_LATER
        since_ms = NEVER if tried.moved else upload.failing_since_ms + tried.waited_ms
        upload.failing_since_ms = min(since_ms, now.mono_ms)
        if now.mono_ms - upload.failing_since_ms >= limits.upload_give_up_ms:
            return StepDownReason.STORE_UNAVAILABLE
        _wait(upload, home.attempt, limits, now)
        return None

    def retry_due(self, now: Instant) -> None:
        if self.next_retry_ms() > now.mono_ms:
            return
        for flight, home in self._direct():
            for part in _PARTS:
                upload = home.upload(part)
                if upload.retry_at_ms > now.mono_ms:
                    continue
                if upload.stage is Stage.PUT_LATER:
                    self._put(flight, home, part)
                elif upload.stage is Stage.ASK_LATER:
                    self._ask(flight, home, part)

    def next_retry_ms(self) -> int:
        due_ms = NEVER
        for _, home in self._direct():
            due_ms = min(due_ms, home.segment.retry_at_ms, home.index.retry_at_ms)
        return due_ms

    def _direct(self) -> Iterator[tuple[Flight, Objects]]:
        for flight in self.flights:
            if isinstance(flight.home, Objects):
                yield flight, flight.home

    def take_uploaded(self, room: int) -> list[Flight]:
        """Leaves the pipeline: the uploaded flights at its front, in offset order, as the tail has room."""
        taken: list[Flight] = []
        while self.flights and room + self.flights[0].home.replaces > 0 and self.flights[0].home.uploaded:
            taken.append(self.flights.popleft())
            room += taken[-1].home.replaces - 1
        return taken

    def without_room(self, room: int) -> list[bytes]:
        """The bundles of slices that `take_uploaded` would leave for want of room alone."""
        found: list[bytes] = []
        for flight in self.flights:
            if not flight.home.uploaded:
                break
            room += flight.home.replaces - 1
            if room < 0 and isinstance(flight.home, InBundle):
                found.append(flight.home.placed().bundle)
        return found

    def expects(self, base: int, part: Part) -> bool:
        """Whether a PUT of it is out; False once its flight was given up."""
        return self._find(base, part, Stage.PUTTING) is not None

    def _find(self, base: int, part: Part, *stages: Stage) -> tuple[Flight, Objects] | None:
        """None for a flight given up with the epoch: its late answers mean nothing any more."""
        for flight, home in self._direct():
            if flight.base == base:
                stage = home.upload(part).stage
                assert stage in stages, f"an answer for {base} {part.name} in {stage.name}"
                return flight, home
        return None

    def _put(self, flight: Flight, home: Objects, part: Part) -> None:
        upload = home.upload(part)
        upload.stage = Stage.PUTTING
        upload.retry_at_ms = NEVER
        self._actions.append(
            PutObject(
                base=flight.base,
                part=part,
                key=upload.key,
                body=upload.body,
                condition=upload.condition,
                metadata={
                    META_TOPIC_ID: self._topic_id,
                    META_EPOCH: str(self._epoch),
                    META_ATTEMPT: home.attempt.hex(),
                    META_LAST: str(flight.end - 1),
                },
            )
        )

    def _ask(self, flight: Flight, home: Objects, part: Part) -> None:
        upload = home.upload(part)
        upload.stage = Stage.ASKING
        upload.retry_at_ms = NEVER
        self._actions.append(HeadObject(base=flight.base, part=part, key=upload.key))


def _wait(upload: Upload, attempt: bytes, limits: Limits, now: Instant) -> None:
    """Doubles with each try. The jitter comes from the attempt's random bytes."""
    delay_ms = min(limits.retry_max_ms, limits.retry_first_ms << min(upload.tries, _BACKOFF_DOUBLINGS_MAX))
    jitter = attempt[upload.tries % len(attempt)]
    upload.retry_at_ms = now.mono_ms + delay_ms // 2 + delay_ms * jitter // 512
    upload.tries += 1
