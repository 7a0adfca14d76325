"""Inside the batches of an append: the one place where records are opened, and compressed anew.

Compaction keeps the newest record of each key, so a compacted topic refuses a record without a key, and each of them
is named to the client (KIP-467). A topic with a `message.timestamp.before.max.ms` refuses batches with older records,
and no field of a batch says how old they are. A topic with a `compression.type` other than `producer` stores every
batch in that codec, as Kafka does: a batch that has the codec already stays as it is, whatever its level; the body of
another one is decompressed and compressed, and no record in it is touched, so offsets, times and sequences are the
producer's.

All of it costs far more than an append, and a small batch may hold a great deal. So the work is in parts, for a caller
that has an event loop: `unpack` and `pack` are long calls into codecs, which let other threads run;
`steps` is Python, a portion at a time. There is no state: what is found is true of the bytes, whenever they are
appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafscale.produce.log.model import Batches, Limits, RecordFault, Rejection
from kafscale.wire.batches import CODEC_MASK, pack_batch
from kafscale.wire.compression import Compression, compress, decompress
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.record_walk import HeaderBudget, earliest_in, keyless_in
from kafscale.wire.records import DECOMPRESSED_BYTES_MAX, HEADER_SIZE, BatchHeader
from msgspec.structs import replace

SMALL_BYTES_MAX: Final = 8 << 10
RECORDS_MAX: Final = 1_000_000
"""Of one record set whose records are looked at: a second's work."""
FAULTS_MAX: Final = 1_000
"""Of one request; the message says how many there are."""
KEYLESS: Final = "A compacted topic takes no record without a key."


class Contents(NamedTuple):
    """What opening a record set brought: why it is refused, or the batches to append in its place."""

    rejection: Rejection | None = None
    recompressed: memoryview | None = None
    earliest_ms: int | None = None  # of its records, where the topic asks and one has a time


class Opening:
    """One record set, opened: `unpack`, `steps`, `pack`, then `contents`.

    What went wrong ends it: the parts that are left do nothing. `batches` have passed `check_record_set`.
    """

    def __init__(self, batches: Batches, limits: Limits) -> None:
        self._batches = batches
        self._keys_required = limits.keys_required
        self._times_wanted = limits.past_is_bounded
        self._looks_inside = limits.looks_inside
        self._earliest_ms: int | None = None
        self._compression = limits.compression
        self._bodies: list[bytes | None] = []
        self._rejection: Rejection | None = None
        self._packed: memoryview | None = None

    def unpack(self, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bool:
        """Decompress what must be looked at. False: more than `bytes_max` come out of all batches together."""
        left = bytes_max
        self._bodies = []
        try:
            for header, batch in self._batches:
                if not self._looks_inside and not self._recompresses(header):
                    self._bodies.append(None)
                    continue
                body = decompress(header.codec, batch[HEADER_SIZE:], bytes_max=left)
                left -= len(body)
                self._bodies.append(body)
        except WireError as broken:
            self._bodies = []
            if broken.code is ErrorCode.MESSAGE_TOO_LARGE and bytes_max < DECOMPRESSED_BYTES_MAX:
                return False
            self._rejection = Rejection(broken.code, str(broken))
        return True

    @property
    def is_small(self) -> bool:
        """Whether all of it takes a millisecond: nothing is compressed, and it is little."""
        size = sum(len(batch) for _, batch in self._batches)
        return size <= SMALL_BYTES_MAX and not any(header.codec for header, _ in self._batches)

    @property
    def bytes_held(self) -> int:
        return sum(len(body) for body in self._bodies if body is not None)

    def steps(self) -> Iterator[None]:
        """Look for keys and times, where the topic wants them."""
        try:
            if self._times_wanted and self._rejection is None:
                yield from self._look_at_times()
            if self._keys_required and self._rejection is None:
                yield from self._look_for_keys()
        except WireError as broken:
            self._rejection = Rejection(broken.code, str(broken))

    def _look_at_times(self) -> Iterator[None]:
        for (header, _), body in zip(self._batches, self._bodies, strict=True):
            assert body is not None, "all were unpacked"
            earliest_ms = yield from earliest_in(body, header)
            known = (each for each in (earliest_ms, self._earliest_ms) if each is not None)
            self._earliest_ms = min(known, default=None)

    def _look_for_keys(self) -> Iterator[None]:
        budget = HeaderBudget()  # of all batches together
        first = keyless = 0
        faults: list[RecordFault] = []
        for (header, _), body in zip(self._batches, self._bodies, strict=True):
            assert body is not None, "all were unpacked"
            for portion in keyless_in(body, header, budget):
                keyless += len(portion)
                room = FAULTS_MAX - len(faults)
                faults += [RecordFault(first + place, KEYLESS) for place in portion[:room]]
                yield
            first += header.records_count
        if keyless:
            reason = f"{keyless} of {first} records were refused: {KEYLESS}"
            self._rejection = Rejection(ErrorCode.INVALID_RECORD, reason, tuple(faults))

    def pack(self) -> None:
        """Compress what the topic stores in another codec."""
        wanted = self._compression
        if wanted is None or self._rejection is not None:
            return
        out, changed = bytearray(), False
        for (header, batch), body in zip(self._batches, self._bodies, strict=True):
            if body is None or not self._recompresses(header):
                out += batch
            else:
                out += _repacked(header, body, wanted)
                changed = True
        if changed:
            self._packed = memoryview(out)

    def _recompresses(self, header: BatchHeader) -> bool:
        return self._compression is not None and header.codec is not self._compression.codec

    def contents(self) -> Contents:
        return Contents(self._rejection, self._packed, self._earliest_ms)


def _repacked(header: BatchHeader, body: bytes, wanted: Compression) -> bytearray:
    """The batch with the same records in another codec; length and CRC are made anew, all else stays."""
    attributes = header.attributes & ~CODEC_MASK | wanted.codec
    return pack_batch(replace(header, attributes=attributes), compress(wanted.codec, body, wanted.level))


def must_open(batches: Batches, limits: Limits) -> bool:
    """Whether a record set that is sound from the outside is opened before it is appended."""
    if limits.looks_inside:
        return True
    wanted = limits.compression
    return wanted is not None and any(header.codec is not wanted.codec for header, _ in batches)


def too_many(batches: Batches) -> Rejection | None:
    """A client that splits a batch which is too large gets its records through."""
    count = sum(header.records_count for header, _ in batches)
    if count <= RECORDS_MAX:
        return None
    reason = f"{count} records in one request; a topic that looks inside takes {RECORDS_MAX}."
    return Rejection(ErrorCode.MESSAGE_TOO_LARGE, reason)


def opened(opening: Opening) -> Contents:
    """All parts at once."""
    opening.unpack()
    for _ in opening.steps():
        pass
    opening.pack()
    return opening.contents()
