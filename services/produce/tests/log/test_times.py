"""message.timestamp.before.max.ms and .after.max.ms: which records are too old or from too far in the future."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.produce.log.contents import RECORDS_MAX
from kafscale.produce.log.model import Limits
from kafscale.wire.batches import pack_batch, read_batch_header
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import HEADER_SIZE, Codec, Record, build_batch
from msgspec.structs import replace as replace_fields
from writer_desk import QUICK, Desk

HOUR_MS = 3_600_000
FUTURE = replace(QUICK, future_max_ms=HOUR_MS)
PAST = replace(QUICK, past_max_ms=HOUR_MS)
BOTH = replace(PAST, future_max_ms=HOUR_MS)
NOW_MS = Desk().now().wall_ms


def at(*from_now_ms: int | None, codec: Codec = Codec.NONE, **fields: int) -> memoryview:
    """A batch of records at these milliseconds from now; None: without a time."""
    times = [-1 if each is None else NOW_MS + each for each in from_now_ms]
    return memoryview(
        build_batch([Record(key=b"k", timestamp=each) for each in times], codec=codec, **fields)
    )  # type: ignore[arg-type]


def answer(limits: Limits, record_set: memoryview) -> ErrorCode:
    """NONE: appended."""
    desk = Desk(limits)
    desk.append(1, record_set)
    return desk.error(1) if 1 in desk.replies else ErrorCode.NONE


@pytest.mark.parametrize("limits", [FUTURE, BOTH])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_record_from_too_far_in_the_future_is_refused(limits: Limits, codec: Codec) -> None:
    assert answer(limits, at(0, HOUR_MS, codec=codec)) is ErrorCode.NONE
    assert answer(limits, at(0, HOUR_MS + 1, 0, codec=codec)) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_each_record_out_of_range_is_named_and_a_missing_key_too(codec: Codec) -> None:
    """Kafka's order: the key comes first, and one wrong time gives all of it the code INVALID_TIMESTAMP."""
    times = (0, HOUR_MS + 1, 0, -HOUR_MS - 1, HOUR_MS)
    keys = (b"k", None, None, b"k", b"k")
    batch = build_batch(
        [Record(timestamp=NOW_MS + ms, key=key) for ms, key in zip(times, keys, strict=True)], codec=codec
    )
    for keys_required, named in ((False, [1, 3]), (True, [1, 2, 3])):
        desk = Desk(replace(BOTH, keys_required=keys_required))
        desk.append(1, memoryview(batch))
        assert desk.error(1) is ErrorCode.INVALID_TIMESTAMP
        assert [fault.record for fault in desk.replies[1].faults] == named


@pytest.mark.parametrize("claim", [-1, 0, 1 << 62])
def test_the_records_count_and_not_the_header(claim: int) -> None:
    for times, code in (((0, 1), ErrorCode.NONE), ((0, HOUR_MS + 1), ErrorCode.INVALID_TIMESTAMP)):
        good = at(*times)
        header = replace_fields(read_batch_header(good), max_timestamp=claim)
        assert answer(BOTH, memoryview(pack_batch(header, bytes(good[HEADER_SIZE:])))) is code


@pytest.mark.parametrize("first_ms", [-(1 << 63), (1 << 63) - 1])
def test_a_time_that_does_not_fit_into_64_bits_is_out_of_range(first_ms: int) -> None:
    good = at(0, -1 if first_ms < 0 else 1)
    header = replace_fields(read_batch_header(good), base_timestamp=first_ms)
    assert (
        answer(QUICK, memoryview(pack_batch(header, bytes(good[HEADER_SIZE:]))))
        is ErrorCode.INVALID_TIMESTAMP
    )


def test_trusted_headers_are_compared_with_the_bounds() -> None:
    trusting = replace(FUTURE, trusts_headers=True)
    assert answer(trusting, at(0, HOUR_MS + 1)) is ErrorCode.INVALID_TIMESTAMP
    assert answer(trusting, at(0, HOUR_MS)) is ErrorCode.NONE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_record_that_is_too_old_is_refused_wherever_it_is_in_its_batch(codec: Codec) -> None:
    assert answer(PAST, at(0, -HOUR_MS, codec=codec)) is ErrorCode.NONE
    for times in ((-HOUR_MS - 1, 0), (0, -HOUR_MS - 1, 0), (0, -HOUR_MS - 1)):
        assert answer(PAST, at(*times, codec=codec)) is ErrorCode.INVALID_TIMESTAMP


def test_any_batch_of_a_set_may_be_the_one_that_is_too_old() -> None:
    for sets in ((at(0), at(-HOUR_MS - 1)), (at(-HOUR_MS - 1), at(0)), (at(-HOUR_MS - 1), at(None))):
        assert answer(PAST, memoryview(b"".join(map(bytes, sets)))) is ErrorCode.INVALID_TIMESTAMP


def test_a_record_without_a_time_is_in_range() -> None:
    assert answer(BOTH, at(None, None)) is ErrorCode.NONE
    assert answer(BOTH, at(0, None)) is ErrorCode.NONE


def test_without_bounds_any_time_is_taken() -> None:
    assert answer(QUICK, at(-NOW_MS, 1 << 50)) is ErrorCode.NONE


def test_the_logs_own_time_is_in_range_whatever_the_producer_says() -> None:
    stamped = replace(BOTH, log_append_time=True)
    assert answer(stamped, at(-NOW_MS, 1 << 50)) is ErrorCode.NONE


def test_a_repeat_is_answered_like_its_original_when_its_time_has_passed() -> None:
    desk = Desk(PAST)
    record_set = at(0, producer_id=7, producer_epoch=0, base_sequence=0)
    desk.write(1, record_set)
    desk.tick(2 * HOUR_MS)
    desk.append(2, record_set)
    assert (desk.error(2), desk.replies[2].base_offset) == (ErrorCode.NONE, 0)
    desk.append(3, at(0))
    assert desk.error(3) is ErrorCode.INVALID_TIMESTAMP


def test_the_answer_says_which_time_and_which_bounds() -> None:
    desk = Desk(BOTH)
    desk.append(1, at(0, -HOUR_MS - 1))
    message = desk.replies[1].message or ""
    for number in (NOW_MS - HOUR_MS - 1, HOUR_MS, NOW_MS):
        assert str(number) in message


def test_the_records_whose_times_are_looked_at_are_bounded() -> None:
    good = at(0, codec=Codec.ZSTD)
    many = replace_fields(
        read_batch_header(good), records_count=RECORDS_MAX // 2 + 1, last_offset_delta=RECORDS_MAX // 2
    )
    twice = memoryview(bytes(pack_batch(many, bytes(good[HEADER_SIZE:]))) * 2)
    assert answer(PAST, twice) is ErrorCode.MESSAGE_TOO_LARGE
