"""Produce requests and record batches that no client should send.

Law: any bytes end in the right Kafka error or in a clean close. Other connections go on, no process dies, and a
connection whose request was answered stays usable.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from kafscale.testkit.plain_records import plain_batch, plain_record
from kafscale.wire.apis import ApiKey
from kafscale.wire.batches import RECORDS_MAX, BatchHeader, pack_batch, read_batch_header
from kafscale.wire.compression import compress
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import HEADER_SIZE, Codec, Record, build_batch, has_valid_crc
from kafscale.wire.schema import list_offsets, produce

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import (
    INT32_MAX,
    INT32_MIN,
    LIST_V,
    PRODUCE_V,
    TOPIC,
    ask_fetch,
    ask_list_offsets,
    ask_produce,
    batch,
    create,
    init_pid,
    list_offsets_body,
    produce_body,
    send,
    usable,
)
from e2e.harness.services import until

SILENCE_S = 1.0
ROLES = ("produce", "fetch", "coordinator", "admin", "frontdoor")

pytestmark = pytest.mark.timeout(120)


def test_acks_0_is_answered_by_nothing_and_written(raw: Raw) -> None:
    before = ask_list_offsets(raw, -1)[1]
    raw.request(ApiKey.PRODUCE, PRODUCE_V, [produce_body((TOPIC, 0, batch(3)), acks=0)])
    assert raw.is_silent(SILENCE_S)
    until("the records are there", lambda: ask_list_offsets(raw, -1)[1] == before + 3)


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_impossible_acks(raw: Raw, acks: int) -> None:
    (result,) = ask_produce(raw, produce_body((TOPIC, 0, batch()), acks=acks))
    assert result.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert result.base_offset == -1


@pytest.mark.parametrize("timeout_ms", [-1, 0, INT32_MIN, INT32_MAX])
def test_any_timeout_is_taken(raw: Raw, timeout_ms: int) -> None:
    (result,) = ask_produce(raw, produce_body((TOPIC, 0, batch()), timeout_ms=timeout_ms))
    assert result.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)


def test_a_transactional_id_says_nothing_of_a_batch_that_is_of_no_transaction(raw: Raw) -> None:
    (result,) = ask_produce(raw, produce_body((TOPIC, 0, batch()), tid="t"))
    assert result.error_code == ErrorCode.NONE


def with_header(**changes: int) -> bytes:
    """A batch with a changed header, but the right CRC and length."""
    good = batch(3)
    header = {name: getattr(read_batch_header(good), name) for name in BatchHeader.__struct_fields__}
    return bytes(pack_batch(BatchHeader(**{**header, **changes}), good[HEADER_SIZE:]))


def patched(position: int, data: bytes) -> bytes:
    """A batch with overwritten bytes; CRC and length are not corrected."""
    good = bytearray(batch(3))
    good[position : position + len(data)] = data
    return bytes(good)


BAD_RECORDS: dict[str, tuple[bytes | None, set[int]]] = {
    "null": (None, {0, 2, 42, 87}),
    "empty": (b"", {0, 2, 42, 87}),
    "one-byte": (b"\0", {2}),
    "header-only": (batch()[:HEADER_SIZE], {2, 87}),
    "cut": (batch(3)[:-1], {2}),
    "longer-than-it-says": (batch(3) + b"\0", {2}),
    "length-negative": (patched(8, struct.pack(">i", -1)), {2}),
    "length-huge": (patched(8, struct.pack(">i", INT32_MAX)), {2}),
    "magic-0": (patched(16, b"\0"), {87}),
    "magic-1": (patched(16, b"\1"), {87}),
    "magic-3": (patched(16, b"\3"), {2}),
    "crc": (patched(17, b"\0\0\0\0"), {2}),
    "bit-in-the-records": (patched(HEADER_SIZE + 3, b"\xff"), {2}),
    "count-0": (with_header(records_count=0), {87}),
    "count-negative": (with_header(records_count=-1), {87}),
    "count-huge": (with_header(records_count=INT32_MAX, last_offset_delta=INT32_MAX - 1), {87}),
    "count-not-delta": (with_header(last_offset_delta=7), {87}),
    "base-offset": (with_header(base_offset=5), {0, 87}),
    "codec-5": (with_header(attributes=5), {76}),
    "codec-7": (with_header(attributes=7), {76}),
    "control": (with_header(attributes=0x20), {87}),
    "transactional": (with_header(attributes=0x10), {53}),
    "timestamp-negative": (with_header(max_timestamp=-2), {0}),
    "count-more-than-records": (with_header(records_count=4, last_offset_delta=3), {87}),
    "count-less-than-records": (with_header(records_count=2, last_offset_delta=1), {87}),
    "not-gzip": (with_header(attributes=1), {87}),
    "not-snappy": (with_header(attributes=2), {87}),
    "not-lz4": (with_header(attributes=3), {87}),
    "not-zstd": (with_header(attributes=4), {87}),
    "pid-without-sequence": (with_header(producer_id=5, producer_epoch=0, base_sequence=-1), {87}),
    "pid-without-epoch": (with_header(producer_id=5, producer_epoch=-1, base_sequence=0), {87}),
    "pid-negative": (with_header(producer_id=-2, producer_epoch=0, base_sequence=0), {0, 87}),
    "unknown-pid-in-the-middle": (
        with_header(producer_id=2**40, producer_epoch=0, base_sequence=9),
        {0, 45, 59},
    ),
    "zeros-behind": (batch() + bytes(2_000_000), {2, 10, 87}),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_records_that_are_not_sound_are_refused_and_the_connection_stays(raw: Raw, name: str) -> None:
    records, codes = BAD_RECORDS[name]
    before = ask_list_offsets(raw, -1, part=1)[1]
    code = send(raw, records, part=1)
    assert code in codes, ErrorCode(code).name
    if code:
        assert ask_list_offsets(raw, -1, part=1)[1] == before
    assert usable(raw)


def test_a_batch_above_the_topics_limit_is_too_large(raw: Raw) -> None:
    big = build_batch([Record(timestamp=1, value=bytes(1_100_000))])
    assert send(raw, big) == ErrorCode.MESSAGE_TOO_LARGE


def test_two_batches_in_one_partition_are_taken_in_order(raw: Raw) -> None:
    before = ask_list_offsets(raw, -1)[1]
    assert send(raw, batch(2) + batch(3)) == ErrorCode.NONE
    assert ask_list_offsets(raw, -1)[1] == before + 5


def test_a_good_partition_is_written_beside_a_bad_one(raw: Raw) -> None:
    bad, _ = BAD_RECORDS["crc"]
    results = ask_produce(raw, produce_body((TOPIC, 0, batch()), (TOPIC, 1, bad)))
    assert [result.error_code for result in results] == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE]


def bomb() -> bytes:
    """A few kilobytes that decompress to a gigabyte of records."""
    zeros = gzip.compress(bytes(64 << 20), 9)
    header = read_batch_header(batch(1))
    fields = {name: getattr(header, name) for name in BatchHeader.__struct_fields__}
    return bytes(pack_batch(BatchHeader(**{**fields, "attributes": int(Codec.GZIP)}), zeros))


def test_a_compression_bomb_costs_the_server_nothing(cluster: Cluster, raw: Raw) -> None:
    """What it may decompress to is bounded, and nothing is stored of it."""
    end = ask_list_offsets(raw, -1, part=1)
    before = {pid: resident_bytes(pid) for role in ROLES for pid in cluster.pids(role)}
    for _ in range(3):
        assert send(raw, bomb(), part=1) == ErrorCode.INVALID_RECORD
    assert ask_list_offsets(raw, -1, part=1) == end
    grown = {pid: resident_bytes(pid) - size for pid, size in before.items()}
    assert max(grown.values()) < 192 << 20


def many(count: int) -> bytes:
    """A few hundred bytes with so many records."""
    header = read_batch_header(batch(1))
    fields = {name: getattr(header, name) for name in BatchHeader.__struct_fields__}
    claims = {"records_count": count, "last_offset_delta": count - 1, "attributes": int(Codec.ZSTD)}
    body = compress(Codec.ZSTD, b"".join(plain_record(number, None, None) for number in range(count)))
    return bytes(pack_batch(BatchHeader(**{**fields, **claims}), body))


def test_a_batch_may_claim_a_million_records(raw: Raw) -> None:
    assert send(raw, many(RECORDS_MAX + 1)) == ErrorCode.INVALID_RECORD


def test_others_do_not_wait_while_a_batch_of_many_records_is_checked(cluster: Cluster, raw: Raw) -> None:
    body = produce_body((TOPIC, 1, many(400_000)))
    raw.request(ApiKey.PRODUCE, PRODUCE_V, [body])
    with Raw.to(cluster.bootstrap) as other:
        for _ in range(20):
            assert send(other, batch()) == ErrorCode.NONE
    answer = produce.decode_response(raw.answer_to(ApiKey.PRODUCE, PRODUCE_V), PRODUCE_V)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


# --- what the records say, and not the header --------------------------------------------------------

FIRST_MS = 1_700_000_000_000


def ask_offset_of(raw: Raw, topic: str, timestamp: int) -> tuple[int, int]:
    """Offset and timestamp."""
    answer = raw.ask(ApiKey.LIST_OFFSETS, LIST_V, list_offsets_body(timestamp, topic=topic))
    found = list_offsets.decode_response(answer, LIST_V).topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return found.offset, found.timestamp


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("claim", [-1, FIRST_MS, FIRST_MS + 10**8], ids=["unset", "low", "high"])
def test_lookups_by_time_find_records_whatever_the_header_says(
    raw: Raw, claim: int, packed: Callable[[bytes], bytes]
) -> None:
    """Old clients leave the largest timestamp at -1. Kafka computes it, so lookups must be right."""
    topic = f"times-{claim}-{packed.__name__}"
    until("the topic is there", lambda: create(raw, topic) in (0, 36))
    body = packed(b"".join(plain_record(n, time_ms=1_000 * n) for n in range(3)))
    wrong = plain_batch(body, 3, base_ms=FIRST_MS, max_ms=claim, attributes=int(packed is gzip.compress))
    until("it takes records", lambda: send(raw, wrong, topic=topic) == ErrorCode.NONE)
    assert send(raw, plain_batch(plain_record(0), 1, base_ms=FIRST_MS + 5_000), topic=topic) == ErrorCode.NONE
    wanted = {0: 0, 500: 1, 1_000: 1, 1_500: 2, 2_000: 2, 2_500: 3, 5_000: 3, 5_001: -1}
    assert {ms: ask_offset_of(raw, topic, FIRST_MS + ms)[0] for ms in wanted} == wanted
    assert ask_offset_of(raw, topic, -3) == (3, FIRST_MS + 5_000)
    (fetched,) = ask_fetch(raw, topic=topic)
    stored = fetched.records
    assert isinstance(stored, memoryview)
    header = read_batch_header(stored)
    assert (header.max_timestamp, has_valid_crc(header, stored[: header.size])) == (FIRST_MS + 2_000, True)


def test_a_body_that_no_consumer_reads_is_refused_and_the_record_is_named(raw: Raw) -> None:
    """Accepted, such a batch stops every consumer of the partition; one without records ends librdkafka's process."""
    end = ask_list_offsets(raw, -1, part=1)
    records = [plain_record(n) for n in range(3)]
    body = b"".join(records)
    bad = {
        "behind the count": (plain_batch(body, 2, base_ms=FIRST_MS), []),
        "bytes behind": (plain_batch(body + b"zz", 3, base_ms=FIRST_MS), []),
        "a length": (plain_batch(records[0] + b"\x06" + records[1][1:], 2, base_ms=FIRST_MS), [1]),
        "empty gzip": (plain_batch(gzip.compress(b""), 3, base_ms=FIRST_MS, attributes=1), []),
        "no lz4": (plain_batch(b"garbage" * 10, 3, base_ms=FIRST_MS, attributes=3), []),
    }
    for name, (data, named) in bad.items():
        (part,) = ask_produce(raw, produce_body((TOPIC, 1, data)))
        assert (part.error_code, part.base_offset) == (ErrorCode.INVALID_RECORD, -1), name
        assert part.error_message, name
        if named:
            assert [error.batch_index for error in part.record_errors] == named, name
    assert ask_list_offsets(raw, -1, part=1) == end


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_sequence_that_wraps_goes_on(raw: Raw) -> None:
    producer_id = init_pid(raw)
    send_numbered = [(INT32_MAX - 1, 2), (0, 1)]
    # A first sequence other than 0 is accepted from a producer whose state was lost, or refused; both are correct.
    codes = [
        send(raw, batch(count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
        for sequence, count in send_numbered
    ]
    assert set(codes) <= {0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
    if codes[0] == 0:
        assert codes[1] == 0


def test_a_repeated_batch_gets_its_first_offset_and_a_gap_is_refused(raw: Raw) -> None:
    producer_id = init_pid(raw)
    first = batch(2, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    (one,) = ask_produce(raw, produce_body((TOPIC, 0, first)))
    (again,) = ask_produce(raw, produce_body((TOPIC, 0, first)))
    assert (one.error_code, again.error_code) == (0, 0)
    assert one.base_offset == again.base_offset
    gap = batch(1, producer_id=producer_id, producer_epoch=0, base_sequence=9)
    assert send(raw, gap) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
