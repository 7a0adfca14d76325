"""The one walk over a batch that a client sent, before the batch is accepted.

Law: a body that this walk accepts can be read by Java's clients and by librdkafka. Its records are as many as the
header says, with the offset deltas 0, 1, 2 and so on. The walk finds the oldest and the newest timestamp, and whether
a record has no key. It creates no record, and keys, values and header names stay closed. A body that is not sound is
INVALID_RECORD, as in Apache Kafka's LogValidator, and `index` is the record at fault.

`_usual` is a fast loop, of about 0.9 microseconds for each record. It stops at any record of an unusual shape, and
`_open` reads that one with the functions of `record_walk`. So the fast loop never refuses anything.

Stricter than Kafka, because some readers fail: a null is only the length -1, a varint has at most 32 bits, and the
offset deltas of uncompressed batches are checked too (Kafka checks those of compressed ones).
"""

from __future__ import annotations

from typing import Final

from kafscale.wire.batches import RECORD_BYTES_MIN, TIMESTAMP_NONE, BatchHeader
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.record_walk import VARINT_BYTES, VARLONG_BYTES, HeaderBudget, signed

_NEVER: Final = 1 << 80
_SHORT: Final = range(7, 28, 7)
_LONG: Final = range(7, 63, 7)
_NOWHERE: Final = -1 << 40
_Place = tuple[int, int, int, int, int, bool]
"""Position, index of the next record, steps left, least and greatest timestamp delta, whether a key was null."""


def survey_at_once(header: BatchHeader, body: Buffer, steps: int) -> tuple[int, int, bool] | None:
    """The oldest and the newest timestamp, and whether a record has no key. None: `Survey` decides, because the batch
    has more records and headers than `steps`, or one of an unusual shape."""
    try:
        place = _usual(body, header.records_count, (0, 0, steps, _NEVER, -_NEVER, False))
    except IndexError:
        return None
    pos, index, _, oldest, newest, keyless = place
    if index != header.records_count or pos != len(body):
        return None
    base_ms = header.base_timestamp
    return base_ms + oldest, max(TIMESTAMP_NONE, base_ms + newest), keyless


class Survey:
    """The walk over one (decompressed) body. It may pause after any record or header.

    `go` raises the WireError INVALID_RECORD, and MESSAGE_TOO_LARGE beyond the budget of headers.
    """

    __slots__ = ("_base_ms", "_body", "_budget", "_count", "_end", "_ends_early", "_headers", "_place")

    def __init__(self, header: BatchHeader, body: Buffer, budget: HeaderBudget) -> None:
        self._body = body
        self._count = header.records_count
        self._base_ms = header.base_timestamp
        self._budget = budget
        self._place: _Place = (0, 0, 0, _NEVER, -_NEVER, False)
        self._end = 0  # of the record whose headers are being walked
        self._headers = 0  # that are left of it
        self._ends_early = False  # some record of the usual shape seems to

    @property
    def index(self) -> int:
        """The record at which the walk is."""
        return self._place[1]

    @property
    def oldest_ms(self) -> int:
        """The least timestamp; a record without one has -1."""
        return self._base_ms + self._place[3]

    @property
    def newest_ms(self) -> int:
        """The greatest timestamp; -1 if no record has one."""
        return max(TIMESTAMP_NONE, self._base_ms + self._place[4])

    @property
    def keyless(self) -> bool:
        """Whether a record has no key."""
        return self._place[5]

    def go(self, steps: int) -> bool:
        """Walks over as many records and headers, and at most 63 more. True: the whole body is sound."""
        body, count = self._body, self._count
        if count * RECORD_BYTES_MIN > len(body):
            raise self._broken(f"{count} records do not fit into {len(body)} bytes")
        pos, index, _, oldest, newest, keyless = self._place
        self._place = pos, index, steps, oldest, newest, keyless
        try:
            while self._headers or self._skip_usual():
                place = self._place if self._headers else self._open(self._place)
                self._place = self._over_headers(place)
                if self._place[2] <= 0:
                    break
        except IndexError:
            raise self._broken("it is cut short") from None
        except WireError as wrong:
            if wrong.code is ErrorCode.CORRUPT_MESSAGE:  # a varint
                raise self._broken(wrong.reason) from None
            raise
        if self.index < count:
            return False
        if self._place[0] != len(body):
            raise self._broken(f"{len(body) - self._place[0]} bytes follow the last record")
        return True

    def _skip_usual(self) -> bool:
        """Walks over records of the usual shape. Whether another one follows, and steps are left."""
        before = self._place
        if not self._ends_early:
            try:
                self._place = _usual(self._body, self._count, before)
            except IndexError:
                self._ends_early = True  # it happens again in `_open`, which knows the record
        _, index, left, *_ = self._place
        self._budget.take(before[2] - left - (index - before[1]))
        return index < self._count and left > 0

    def _open(self, place: _Place) -> _Place:
        """Reads a record of any shape, up to its headers."""
        body = self._body
        pos, index, steps, oldest, newest, keyless = place
        size, pos = signed(body, pos, VARINT_BYTES)
        self._end = end = pos + size
        if size < 0 or end > len(body):
            raise self._broken(f"its length is {size}, and {len(body) - pos} bytes follow")
        delta_ms, pos = signed(body, pos + 1, VARLONG_BYTES)
        delta, pos = signed(body, pos, VARINT_BYTES)
        if delta != index:
            raise self._broken(f"its offset delta is {delta}")
        for field in ("key", "value"):
            length, pos = signed(body, pos, VARINT_BYTES)
            if not -1 <= length <= end - pos:
                raise self._broken(f"its {field} has {length} bytes, and {end - pos} follow")
            keyless |= field == "key" and length == -1
            pos += max(0, length)
        self._headers, pos = signed(body, pos, VARINT_BYTES)
        if not 0 <= self._headers <= (end - pos) // 2:
            raise self._broken(f"it has {self._headers} headers in {end - pos} bytes")
        return pos, index, steps - 1, min(oldest, delta_ms), max(newest, delta_ms), keyless

    def _over_headers(self, place: _Place) -> _Place:
        """Walks over headers of the open record; behind the last one the next record begins."""
        body, end = self._body, self._end
        pos, index, steps, oldest, newest, keyless = place
        now = min(self._headers, max(1, steps))
        self._budget.take(now)
        for _ in range(now):
            for least in (0, -1):  # a name, and a value that may be null
                length, pos = signed(body, pos, VARINT_BYTES)
                if not least <= length <= end - pos:
                    raise self._broken(f"a header has {length} bytes, and {end - pos} follow")
                pos += max(0, length)
        self._headers -= now
        if not self._headers:
            if pos != end:
                raise self._broken(f"it has {end - pos} bytes more than its fields")
            index += 1
        return pos, index, steps - now, oldest, newest, keyless

    def _broken(self, reason: str) -> WireError:
        return WireError(
            "record", f"number {self.index} of its batch: {reason}", code=ErrorCode.INVALID_RECORD
        )


def _usual(body: Buffer, count: int, place: _Place) -> _Place:
    """Walks over records of the usual shape, and stops before any other. Raises IndexError behind the end.

    Varints of one byte are read in place, because a call for each would double the cost. A null has the raw length 1
    (-1 in zigzag), and half of it is 0. Every other odd length is negative.
    """
    pos, index, left, oldest, newest, keyless = place
    start, times = pos, list[int]()
    while index < count and left > 0:
        if (size := body[pos]) > 127:
            size, pos = _rest(body, pos, size)
        end = pos + 1 + (size >> 1)
        pos += 2  # the attributes of a record are unused
        if (time := body[pos]) > 127:
            time, pos = _rest(body, pos, time, _LONG)
        if (delta := body[pos + 1]) > 127:
            delta, pos = _rest(body, pos + 1, delta)
            pos -= 1
        pos += 2
        if (key := body[pos]) > 127:
            key, pos = _rest(body, pos, key)
        pos += 1 + (key >> 1)
        if (value := body[pos]) > 127:
            value, pos = _rest(body, pos, value)
        pos += 1 + (value >> 1)
        if headers := body[pos]:
            pos = _last_of_headers(body, pos, headers)
        pos += 1
        odd = (size | key & -(key != 1) | value & -(value != 1)) & 1
        if pos != end or odd or delta != index << 1:
            break
        times.append(time >> 1 ^ -(time & 1))
        keyless |= key == 1
        index += 1
        left -= 1 + (headers >> 1)
        start = pos
    if times:
        oldest, newest = min(oldest, min(times)), max(newest, max(times))
    return start, index, left, oldest, newest, keyless


def _rest(body: Buffer, pos: int, value: int, shifts: range = _SHORT) -> tuple[int, int]:
    """The raw varint at `pos`, whose first byte is `value`, and the position of its last byte. Of one that is too long
    the position is none, so that the next read stops the walk."""
    value &= 127
    for shift in shifts:
        pos += 1
        byte = body[pos]
        if byte < 128:
            return value | byte << shift, pos
        value |= (byte & 127) << shift
    return value, _NOWHERE


def _last_of_headers(body: Buffer, pos: int, headers: int) -> int:
    """The position of the last byte of a record's headers, whose number is the raw `headers` at `pos`."""
    if headers > 127 or headers & 1:
        return _NOWHERE
    for _ in range(headers >> 1):
        pos += 1
        if (name := body[pos]) > 127:
            name, pos = _rest(body, pos, name)
        pos += 1 + (name >> 1)
        if (value := body[pos]) > 127:
            value, pos = _rest(body, pos, value)
        pos += value >> 1
        if (name | value & -(value != 1)) & 1:
            return _NOWHERE
    return pos
