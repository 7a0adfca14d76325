"""The walk over a client's batch: its verdict is that of a plain reader of Kafka's format, whatever the bytes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from aiokafka.record import default_records as aio_records
from hypothesis import given
from hypothesis import strategies as st
from kafscale.testkit.plain_records import PlainRecords, read_plain
from kafscale.wire import survey as survey_module
from kafscale.wire.batches import BatchHeader, pack_batch
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.record_walk import HEADERS_MAX, HeaderBudget
from kafscale.wire.records import HEADER_SIZE, Record, build_batch, read_batch_header, signed_varint
from kafscale.wire.survey import Survey, survey_at_once
from record_values import RECORDS, SOUND, record_of
from wire_values import quick

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import CorruptRecordError
    from kafka.record import default_records as kafka_records

ALL = 1 << 40
FIRST_MS = 1_700_000_000_000


def header_of(count: int, first_ms: int = FIRST_MS) -> BatchHeader:
    header = read_batch_header(build_batch([Record(timestamp=first_ms)]))
    return msgspec.structs.replace(header, records_count=count, last_offset_delta=count - 1)


def walked(body: bytes, count: int, steps: int = ALL) -> PlainRecords | None:
    """None: refused."""
    survey = Survey(header_of(count), memoryview(body), HeaderBudget())
    try:
        while not survey.go(steps):
            pass
    except WireError as refused:
        return None if refused.code is ErrorCode.INVALID_RECORD else pytest.fail(str(refused))
    return PlainRecords(survey.oldest_ms, survey.newest_ms, survey.keyless)


def body_with(records: list[Record]) -> bytes:
    """Written by aiokafka."""
    builder: Any = aio_records.DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for number, each in enumerate(records):
        headers = [(name, value or b"") for name, value in each.headers]
        builder.append(number, timestamp=each.timestamp, key=each.key, value=each.value, headers=headers)
    return bytes(builder.build())[HEADER_SIZE:]


@quick(200)
@given(records=RECORDS, steps=st.integers(1, 5))
def test_a_walk_finds_the_times_and_the_missing_keys_of_what_another_client_wrote(
    records: list[Record], steps: int
) -> None:
    body, header = body_with(records), header_of(len(records), records[0].timestamp)
    survey = Survey(header, body, HeaderBudget())
    while not survey.go(steps):
        pass
    times = [record.timestamp for record in records]
    expected = PlainRecords(min(times), max(times), any(record.key is None for record in records))
    assert PlainRecords(survey.oldest_ms, survey.newest_ms, survey.keyless) == expected
    assert survey_at_once(header, body, ALL) == expected


def _with_byte(body: bytes, at: int, byte: int) -> bytes:
    return body[:at] + bytes((byte,)) + body[at + 1 :]


MUTATIONS: tuple[Callable[[bytes, int, int], bytes], ...] = (
    _with_byte,
    lambda body, at, byte: body[:at] + bytes((byte,)) + body[at:],
    lambda body, at, byte: body[:at] + body[at + 1 :],
    lambda body, at, byte: _with_byte(body, at, body[at] ^ 1 << byte % 8),
    lambda body, at, byte: body[: at + 1],
    lambda body, at, byte: body + bytes((byte,)),
    lambda body, at, byte: (
        _with_byte(body, at, body[at] | 0x80)[: at + 1] + b"\x00" + body[at + 1 :]
    ),  # a longer varint
    lambda body, at, byte: body[:at] + b"\x80\x80\x80\x80\x80" + body[at:],
)


@quick(600)
@given(
    records=RECORDS,
    changes=st.lists(
        st.tuples(st.sampled_from(MUTATIONS), st.integers(0, 1 << 12), st.integers(0, 255)), max_size=3
    ),
    more=st.sampled_from([0, 0, 0, 1, -1]),
    steps=st.sampled_from([1, 2, ALL]),
)
def test_the_verdict_on_any_bytes_is_that_of_a_plain_reader(
    records: list[Record], changes: list[tuple[Any, int, int]], more: int, steps: int
) -> None:
    body, count = body_with(records), max(1, len(records) + more)
    for change, at, byte in changes:
        body = change(body, at % len(body), byte) or b"\x00"
    expected = read_plain(body, count, FIRST_MS)
    assert walked(body, count, steps) == expected
    quickly = survey_at_once(header_of(count), body, ALL)
    assert quickly is None or quickly == expected


@quick(300)
@given(body=st.binary(max_size=60), count=st.integers(1, 6))
def test_the_verdict_on_noise_is_that_of_a_plain_reader(body: bytes, count: int) -> None:
    assert walked(body, count) == read_plain(body, count, FIRST_MS)


@quick(300)
@given(records=RECORDS, at=st.integers(0, 1 << 12), byte=st.integers(0, 127))
def test_what_is_accepted_two_other_clients_can_read(records: list[Record], at: int, byte: int) -> None:
    """Both read the attributes of a record as a varint, so no byte here has the high bit."""
    body = body_with(records)
    body = _with_byte(body, at % len(body), byte)
    found = walked(body, len(records))
    if found is None:
        return
    batch = bytes(pack_batch(header_of(len(records)), body))
    for client in (aio_records, kafka_records):
        try:
            read = list(client.DefaultRecordBatch(bytearray(batch)))
        except (UnicodeDecodeError, CorruptRecordError) as refused:
            if "UnicodeDecodeError" not in repr(refused):
                raise
            continue  # a header's name: these clients want text there, Kafka and librdkafka do not
        assert [record.offset for record in read] == list(range(len(records)))
        assert any(record.key is None for record in read) == found.keyless


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x02k\x02v\x00", "its offset delta is 0"),
        (b"\x00\x00\x02\x03\x02v\x00", "its key has -2 bytes"),
        (b"\x00\x00\x02\x02k\x40v\x00", "its value has 32 bytes"),
        (b"\x00\x00\x02\x02k\x02v\x01", "it has -1 headers"),
        (b"\x00\x00\x02\x02k\x02v\x02\x01\x01", "a header has -1 bytes"),
        (b"\x00\x00\x02\x02k\x02v\x00\x00", "1 bytes more than its fields"),
        (b"\x00\x00\x80\x80\x80\x80\x80\x01\x02k\x02v\x00", "a varint is too long"),
        (b"\x00\x00\x02\x02k\x02", "its value has 1 bytes, and 0 follow"),
    ],
)
def test_a_refusal_names_the_record_and_says_why(data: bytes, why: str) -> None:
    survey = Survey(header_of(2), record_of(SOUND) + record_of(data), HeaderBudget())
    with pytest.raises(WireError, match=f"number 1 of its batch: .*{why}") as refused:
        survey.go(ALL)
    assert survey.index == 1
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_the_header_of_the_batch_does_not_matter_for_the_newest_time() -> None:
    body = body_with([Record(timestamp=5), Record(timestamp=9), Record(timestamp=7)])
    for claim in (-1, 5, 1 << 62):
        header = msgspec.structs.replace(header_of(3, 5), max_timestamp=claim)
        survey = Survey(header, body, HeaderBudget())
        assert survey.go(ALL)
        assert (survey.oldest_ms, survey.newest_ms) == (5, 9)


def test_records_without_a_time_have_none() -> None:
    survey = Survey(header_of(2, -1), body_with([Record(), Record()]), HeaderBudget())
    assert survey.go(ALL)
    assert (survey.oldest_ms, survey.newest_ms) == (-1, -1)


def test_a_walk_pauses_after_its_steps_and_goes_on() -> None:
    body = body_with([Record(timestamp=5)] * 10)
    survey = Survey(header_of(10, 5), body, HeaderBudget())
    indexes = []
    while not survey.go(3):
        indexes.append(survey.index)
    assert indexes == [3, 6, 9]


def test_one_record_with_many_headers_is_walked_in_portions_too() -> None:
    """Half a million headers fit into a megabyte: half a second of the event loop."""
    data = b"\x00\x00\x00\x02k\x01" + signed_varint(1_000) + b"\x00\x01" * 1_000
    survey = Survey(header_of(1), signed_varint(len(data)) + data, HeaderBudget())
    portions = 1
    while not survey.go(100):
        portions += 1
    assert portions == 11
    assert survey_at_once(header_of(1), signed_varint(len(data)) + data, 100) is None


@pytest.mark.parametrize("headers", [3, 70])
def test_the_headers_of_all_batches_are_bounded(headers: int) -> None:
    data = b"\x00\x00\x00\x02k\x01" + signed_varint(headers) + b"\x00\x01" * headers
    body = signed_varint(len(data)) + data
    budget = HeaderBudget(2 * headers)
    for _ in range(2):
        assert Survey(header_of(1), body, budget).go(ALL)
    with pytest.raises(WireError, match="headers in its records") as refused:
        Survey(header_of(1), body, budget).go(ALL)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert HEADERS_MAX >= 1_000_000


def test_more_records_than_the_bytes_can_hold_are_refused_at_once() -> None:
    survey = Survey(header_of(1_000_000), bytes(100), HeaderBudget())
    with pytest.raises(WireError, match="do not fit"):
        survey.go(1)


def test_a_batch_that_ends_early_is_refused_in_time_that_grows_with_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its records are walked once by the fast loop and once by the careful one, not again for each of them."""
    quick, calls = survey_module._usual, list[int]()

    def counted(*args: Any) -> Any:
        calls.append(1)
        return quick(*args)

    monkeypatch.setattr(survey_module, "_usual", counted)
    body = body_with([Record(timestamp=5)] * 3_000)
    survey = Survey(header_of(3_001, 5), body, HeaderBudget())
    with pytest.raises(WireError, match="cut short"):
        survey.go(ALL)
    assert (survey.index, len(calls)) == (3_000, 1)


def test_a_header_name_that_is_no_text_is_accepted_as_in_kafka() -> None:
    data = b"\x00\x00\x00\x02k\x01\x02\x04\xff\xfe\x01"
    assert walked(record_of(data), 1) is not None
