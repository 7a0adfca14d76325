"""What no client should send, sent to real processes.

Law: any bytes end in the right Kafka error or in a clean close. Other connections go on, no process dies, and a
connection whose request was answered stays usable.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.batches import BatchHeader, pack_batch, read_batch_header
from kafscale.wire.errors import ErrorCode
from kafscale.wire.headers import encode_request_header
from kafscale.wire.records import HEADER_SIZE, Codec, Record, build_batch
from kafscale.wire.schema import (
    api_versions,
    create_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from kafscale.wire.varints import encode_uvarint

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Closed, Raw
from e2e.harness.services import until

TOPIC = "bystander"
ROLES = ("produce", "fetch", "coordinator", "admin", "frontdoor", "etcd")
PRODUCE_V, FETCH_V, METADATA_V, LIST_V, CREATE_V = 9, 12, 9, 7, 5
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
SILENCE_S = 1.0
IDLE_CONNECTIONS = 500

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("bad-input"))
    cluster.start()
    with Raw.to(cluster.bootstrap) as raw:
        until("the topic is there", lambda: create(raw, TOPIC, partitions=2) in (0, 36))
    yield cluster
    cluster.kill()


@dataclass(frozen=True, slots=True)
class Bystander:
    """A connection that was there before, and the processes that must still be there after."""

    raw: Raw
    pids: dict[str, list[int]]


@pytest.fixture(autouse=True)
def bystander(cluster: Cluster) -> Iterator[Bystander]:
    pids = {role: cluster.pids(role) for role in ROLES}
    with Raw.to(cluster.bootstrap) as raw:
        assert send(raw, batch()) == ErrorCode.NONE
        yield Bystander(raw, pids)
        assert send(raw, batch()) == ErrorCode.NONE
    assert {role: cluster.pids(role) for role in ROLES} == pids


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[Raw]:
    with Raw.to(cluster.bootstrap) as connection:
        yield connection


def batch(
    count: int = 1, *, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1
) -> bytes:
    return build_batch(
        [Record(timestamp=1_700_000_000_000, value=b"v") for _ in range(count)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def produce_body(
    *entries: tuple[str, int, bytes | None], acks: int = -1, timeout_ms: int = 30_000, tid: str | None = None
) -> bytes:
    """Each entry as a topic of its own, so that duplicates can be said."""
    topics = [
        produce.ProduceRequestTopic(
            name=name, partition_data=[produce.ProduceRequestPartition(index=part, records=records)]
        )
        for name, part, records in entries
    ]
    message = produce.ProduceRequest(
        transactional_id=tid, acks=acks, timeout_ms=timeout_ms, topic_data=topics
    )
    return b"".join(produce.encode_request(message, PRODUCE_V))


def ask_produce(raw: Raw, body: bytes) -> list[produce.ProduceResponsePartition]:
    answer = produce.decode_response(raw.ask(ApiKey.PRODUCE, PRODUCE_V, [body]), PRODUCE_V)
    return [part for topic in answer.responses for part in topic.partition_responses]


def send(raw: Raw, records: bytes | None, *, part: int = 0, topic: str = TOPIC) -> int:
    (result,) = ask_produce(raw, produce_body((topic, part, records)))
    return result.error_code


def create(raw: Raw, name: str, *, partitions: int = 1, replication: int = -1) -> int:
    topic = create_topics.CreateTopicsRequestTopic(
        name=name, num_partitions=partitions, replication_factor=replication
    )
    body = create_topics.encode_request(create_topics.CreateTopicsRequest(topics=[topic]), CREATE_V)
    answer = create_topics.decode_response(raw.ask(ApiKey.CREATE_TOPICS, CREATE_V, body), CREATE_V)
    return answer.topics[0].error_code


def usable(raw: Raw) -> bool:
    answer = api_versions.decode_response(
        raw.ask(ApiKey.API_VERSIONS, 0, api_versions.encode_request(api_versions.ApiVersionsRequest(), 0)), 0
    )
    return answer.error_code == 0 and bool(answer.api_keys)


# -- frames ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, -1, INT32_MIN, INT32_MAX, 100 * 1024 * 1024 + 1, 1, 7])
def test_a_frame_of_an_impossible_length_closes_the_connection(raw: Raw, length: int) -> None:
    raw.send(struct.pack(">i", length) + b"\0" * min(max(length, 0), 16))
    assert raw.is_closed()


def test_a_request_is_answered_that_comes_byte_by_byte(raw: Raw) -> None:
    payload = encode_request_header(ApiKey.API_VERSIONS, 0, 7, "slow")
    for byte in struct.pack(">i", len(payload)) + payload:
        raw.send(bytes([byte]))
    assert raw.answer()[:4] == struct.pack(">i", 7)


def test_twenty_requests_in_one_segment_are_answered_in_order(raw: Raw) -> None:
    one = [encode_request_header(ApiKey.API_VERSIONS, 0, number, "piped") for number in range(20)]
    raw.send(b"".join(struct.pack(">i", len(payload)) + payload for payload in one))
    assert [struct.unpack_from(">i", raw.answer())[0] for _ in one] == list(range(20))


def test_slow_and_quick_requests_in_one_segment_are_answered_in_order(raw: Raw) -> None:
    fetching = fetch_body(offset=0, max_wait_ms=500, min_bytes=INT32_MAX)
    for number in range(20):
        if number % 5:
            raw.request(ApiKey.API_VERSIONS, 0, [])
        else:
            raw.request(ApiKey.FETCH, FETCH_V, [fetching] if number % 2 else [produce_free_fetch()])
    assert [struct.unpack_from(">i", raw.answer())[0] for _ in range(20)] == list(range(1, 21))


def produce_free_fetch() -> bytes:
    """A fetch of no partition at all."""
    return b"".join(fetch.encode_request(fetch.FetchRequest(max_wait_ms=10, session_id=0), FETCH_V))


def test_pipelined_requests_before_a_half_close_are_answered(raw: Raw) -> None:
    for _ in range(5):
        raw.request(ApiKey.PRODUCE, PRODUCE_V, [produce_body((TOPIC, 0, batch()))])
    raw.socket.shutdown(1)
    answers: list[bytes] = []
    with contextlib.suppress(Closed):  # a half-closed client may also be taken as gone
        while len(answers) < 5:
            answers.append(raw.answer())
    assert [struct.unpack_from(">i", answer)[0] for answer in answers] == list(range(1, len(answers) + 1))


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        bytes.fromhex("16030100a5010000a10303") + b"\x5a" * 160,  # a TLS ClientHello
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x05\x01\x00",  # SOCKS, and then nothing
    ],
    ids=["http", "tls", "http2", "socks"],
)
def test_another_protocol_is_hung_up_on(raw: Raw, greeting: bytes) -> None:
    raw.send(greeting)
    raw.socket.shutdown(1)
    assert raw.is_closed()


def test_hundreds_of_idle_connections_do_not_matter(cluster: Cluster, raw: Raw) -> None:
    idle = [Raw.to(cluster.bootstrap) for _ in range(IDLE_CONNECTIONS)]
    try:
        assert usable(raw)
        assert send(raw, batch()) == ErrorCode.NONE
        assert all(usable(each) for each in idle[:: IDLE_CONNECTIONS // 10])
    finally:
        for each in idle:
            each.socket.close()


def test_a_client_that_leaves_in_the_middle_of_a_frame_is_no_matter(cluster: Cluster) -> None:
    for size in (1, 3, 4, 9, 40):
        with Raw.to(cluster.bootstrap) as leaver:
            payload = encode_request_header(ApiKey.PRODUCE, PRODUCE_V, 1, "leaver") + produce_body(
                (TOPIC, 0, batch())
            )
            leaver.send((struct.pack(">i", len(payload)) + payload)[:size])


# -- headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_apiversions_is_answered_in_version_0(raw: Raw, version: int) -> None:
    raw.frame(struct.pack(">hhih", 18, version, 77, 3) + b"new" + b"\0\x0aunknown-sw\x02v\0")
    frame = raw.answer()
    assert frame[:4] == struct.pack(">i", 77)
    answer = api_versions.decode_response(frame[4:], 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert any(row.api_key == 18 and row.max_version >= 3 for row in answer.api_keys)
    assert usable(raw)


@pytest.mark.parametrize("key", [-1, 999, 32767, -32768])
def test_an_unknown_api_closes_the_connection(raw: Raw, key: int) -> None:
    raw.frame(struct.pack(">hhih", key, 0, 1, -1))
    assert raw.is_closed()


def test_an_api_that_is_not_served_closes_the_connection(raw: Raw) -> None:
    raw.frame(encode_request_header(ApiKey.JOIN_GROUP, 5, 1, "x") + b"\0" * 20)
    assert raw.is_closed()


@pytest.mark.parametrize("size", range(8))
def test_a_header_that_is_cut_short_closes_the_connection(raw: Raw, size: int) -> None:
    raw.frame(struct.pack(">hhih", 3, 9, 1, -1)[:size] or b"\0")
    assert raw.is_closed()


def test_a_null_client_id_is_fine(raw: Raw) -> None:
    raw.request(ApiKey.API_VERSIONS, 0, [], client_id=None)
    assert api_versions.decode_response(raw.answer_to(18, 0), 0).error_code == 0


@pytest.mark.parametrize(
    "client_id",
    [struct.pack(">h", -2), struct.pack(">h", 32767) + b"x", struct.pack(">h", 2) + b"\xff\xfe"],
    ids=["length-2", "longer-than-the-frame", "not-utf8"],
)
def test_a_client_id_that_is_none_closes_the_connection(raw: Raw, client_id: bytes) -> None:
    raw.frame(struct.pack(">hhi", 3, 1, 1) + client_id)
    assert raw.is_closed()


def test_a_long_client_id_is_fine(raw: Raw) -> None:
    raw.request(ApiKey.API_VERSIONS, 0, [], client_id="x" * 32767)
    assert api_versions.decode_response(raw.answer_to(18, 0), 0).error_code == 0


@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 100_000])
def test_more_tagged_fields_than_bytes_close_the_connection(raw: Raw, count: int) -> None:
    raw.frame(struct.pack(">hhih", 3, 9, 1, -1) + encode_uvarint(count))
    assert raw.is_closed()


def test_unknown_tagged_fields_are_passed_over(raw: Raw) -> None:
    tags = encode_uvarint(2) + b"\x07\x01a" + b"\x09\x02bc"
    raw.frame(struct.pack(">hhih", 18, 3, 5, -1) + tags + b"\x02a\x02b" + tags)
    assert api_versions.decode_response(raw.answer()[4:], 3).error_code == 0


# -- counts that would be allocations --------------------------------------------------------------


@pytest.mark.parametrize("count", [INT32_MAX, 1_000_000, -2, INT32_MIN])
@pytest.mark.parametrize(
    ("key", "version", "before"),
    [
        (ApiKey.METADATA, 1, b""),
        (ApiKey.PRODUCE, 3, struct.pack(">hhi", -1, -1, 1000)),
        (ApiKey.FETCH, 4, struct.pack(">iiiib", -1, 0, 0, 1, 0)),
        (ApiKey.LIST_OFFSETS, 1, struct.pack(">i", -1)),
        (ApiKey.CREATE_TOPICS, 2, b""),
        (ApiKey.DELETE_TOPICS, 1, b""),
        (ApiKey.DESCRIBE_CONFIGS, 1, b""),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, b""),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else None,
)
def test_a_count_of_elements_that_are_not_there_closes(
    raw: Raw, key: ApiKey, version: int, before: bytes, count: int
) -> None:
    raw.request(key, version, [before + struct.pack(">i", count)])
    assert raw.is_closed()


@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 2**30])
def test_a_compact_count_of_elements_that_are_not_there_closes(raw: Raw, count: int) -> None:
    raw.request(ApiKey.METADATA, 9, [encode_uvarint(count)])
    assert raw.is_closed()


def test_a_request_with_bytes_left_over_closes(raw: Raw) -> None:
    raw.request(ApiKey.METADATA, 1, [struct.pack(">i", 0) + b"more"])
    assert raw.is_closed()


# -- names and partitions --------------------------------------------------------------------------

BAD_NAMES = ["", "..", ".", "a/b", "../../etc", "%2e%2e/x y", "n" * 250, "nul\0", "ünïcode", "@kafscale"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_no_topic_anywhere(cluster: Cluster, raw: Raw, name: str) -> None:
    invalid, unknown = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create(raw, name) == invalid
    assert ask_metadata(raw, name) == invalid
    assert send(raw, batch(), topic=name) in (unknown, invalid)
    assert ask_fetch(raw, topic=name)[0].error_code in (unknown, invalid)
    assert ask_list_offsets(raw, -1, topic=name)[0] in (unknown, invalid)
    folders = {path.name for path in (cluster.data_dir / "objects" / "default").iterdir()}
    assert folders <= {TOPIC, "@kafscale"}


def ask_metadata(raw: Raw, name: str) -> int:
    message = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)])
    answer = raw.ask(ApiKey.METADATA, METADATA_V, metadata.encode_request(message, METADATA_V))
    return metadata.decode_response(answer, METADATA_V).topics[0].error_code


@pytest.mark.parametrize("part", [-1, 2, INT32_MAX, INT32_MIN])
def test_a_partition_that_is_not_there_is_unknown(raw: Raw, part: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(raw, batch(), part=part) == unknown
    assert ask_fetch(raw, part=part)[0].error_code == unknown
    assert ask_list_offsets(raw, -1, part=part)[0] == unknown


def test_one_partition_twice_in_a_produce_request_never_loses_or_doubles(raw: Raw) -> None:
    before = ask_list_offsets(raw, -1)[1]
    results = ask_produce(raw, produce_body((TOPIC, 0, batch()), (TOPIC, 0, batch())))
    good = [result.base_offset for result in results if result.error_code == 0]
    assert len(results) in (1, 2)
    assert len(set(good)) == len(good)
    assert ask_list_offsets(raw, -1)[1] == before + len(good)


def test_one_topic_twice_in_createtopics_is_refused(raw: Raw) -> None:
    topic = create_topics.CreateTopicsRequestTopic(name="twice", num_partitions=1, replication_factor=1)
    message = create_topics.CreateTopicsRequest(topics=[topic, topic])
    answer = raw.ask(ApiKey.CREATE_TOPICS, CREATE_V, create_topics.encode_request(message, CREATE_V))
    codes = {each.error_code for each in create_topics.decode_response(answer, CREATE_V).topics}
    assert codes == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(
    ("partitions", "replication", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (INT32_MAX, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_numbers_in_createtopics(
    raw: Raw, partitions: int, replication: int, code: ErrorCode
) -> None:
    assert create(raw, "impossible", partitions=partitions, replication=replication) == code


# -- produce ---------------------------------------------------------------------------------------


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


def test_a_transactional_id_is_refused_while_transactions_are_not_served(raw: Raw) -> None:
    (result,) = ask_produce(raw, produce_body((TOPIC, 0, batch()), tid="t"))
    assert result.error_code == ErrorCode.INVALID_REQUEST


def with_header(**changes: int) -> bytes:
    """A batch whose header says something else, under a right CRC and length."""
    good = batch(3)
    header = {name: getattr(read_batch_header(good), name) for name in BatchHeader.__struct_fields__}
    return bytes(pack_batch(BatchHeader(**{**header, **changes}), good[HEADER_SIZE:]))


def patched(position: int, data: bytes) -> bytes:
    """A batch with bytes overwritten, and nothing corrected."""
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
    "transactional": (with_header(attributes=0x10), {42, 87}),
    "timestamp-negative": (with_header(max_timestamp=-2), {32}),
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
    """A kilobyte or a few that says it is a gigabyte of records."""
    zeros = gzip.compress(bytes(64 << 20), 9)
    header = read_batch_header(batch(1))
    fields = {name: getattr(header, name) for name in BatchHeader.__struct_fields__}
    return bytes(pack_batch(BatchHeader(**{**fields, "attributes": int(Codec.GZIP)}), zeros))


def test_a_compression_bomb_costs_the_server_nothing(cluster: Cluster, raw: Raw) -> None:
    """Records are opaque: they are stored as they came. Only what must look into them would unpack them."""
    before = {pid: resident_bytes(pid) for role in ROLES for pid in cluster.pids(role)}
    assert send(raw, bomb(), part=1) in (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    ask_list_offsets(raw, 1_600_000_000_000, part=1)  # by time: this one looks into batches
    ask_list_offsets(raw, -3, part=1)
    grown = {pid: resident_bytes(pid) - size for pid, size in before.items()}
    assert max(grown.values()) < 192 << 20


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_sequence_that_wraps_goes_on(raw: Raw) -> None:
    producer_id = init_pid(raw)
    send_numbered = [(INT32_MAX - 1, 2), (0, 1)]
    # A first sequence other than 0 is taken from a producer whose state was lost, or refused; both are sound.
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


def init_pid(raw: Raw) -> int:
    message = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = raw.ask(ApiKey.INIT_PRODUCER_ID, 1, init_producer_id.encode_request(message, 1))
    decoded = init_producer_id.decode_response(answer, 1)
    assert decoded.error_code == 0
    return decoded.producer_id


# -- reads -----------------------------------------------------------------------------------------


def fetch_body(
    *,
    offset: int = 0,
    topic: str = TOPIC,
    part: int = 0,
    max_bytes: int = 1 << 20,
    part_bytes: int = 1 << 20,
    max_wait_ms: int = 100,
    min_bytes: int = 1,
    session_id: int = 0,
    epoch: int = -1,
    leader_epoch: int = -1,
) -> bytes:
    wanted = fetch.FetchRequestPartition(
        partition=part, fetch_offset=offset, partition_max_bytes=part_bytes, current_leader_epoch=leader_epoch
    )
    message = fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=epoch,
        topics=[fetch.FetchRequestTopic(topic=topic, partitions=[wanted])],
    )
    return b"".join(fetch.encode_request(message, FETCH_V))


def ask_fetch(raw: Raw, **wanted: object) -> tuple[fetch.FetchResponsePartition, ...]:
    answer = fetch.decode_response(
        raw.ask(ApiKey.FETCH, FETCH_V, [fetch_body(**wanted)]),  # type: ignore[arg-type]
        FETCH_V,
    )
    return tuple(part for topic in answer.responses for part in topic.partitions)


@pytest.mark.parametrize("offset", [-1, -5, 2**62, -(2**63)])
def test_an_offset_that_cannot_be_is_out_of_range(raw: Raw, offset: int) -> None:
    (part,) = ask_fetch(raw, offset=offset)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert part.records is not None


@pytest.mark.parametrize(
    "wanted",
    [
        {"max_bytes": 0},
        {"max_bytes": -1},
        {"part_bytes": 0},
        {"part_bytes": -1},
        {"min_bytes": INT32_MAX, "max_bytes": 10},
        {"max_wait_ms": -1},
        {"min_bytes": -1},
    ],
    ids=str,
)
def test_odd_limits_still_give_the_first_batch_or_nothing(raw: Raw, wanted: dict[str, int]) -> None:
    (part,) = ask_fetch(raw, offset=0, **wanted)
    assert part.error_code == ErrorCode.NONE
    assert part.records is not None


def test_an_unknown_session_is_not_taken_for_known(raw: Raw) -> None:
    body = fetch_body(session_id=12345, epoch=7)
    answer = fetch.decode_response(raw.ask(ApiKey.FETCH, FETCH_V, [body]), FETCH_V)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_leader_epoch_from_the_future_is_unknown(raw: Raw) -> None:
    assert ask_fetch(raw, leader_epoch=INT32_MAX)[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def ask_list_offsets(raw: Raw, timestamp: int, *, topic: str = TOPIC, part: int = 0) -> tuple[int, int]:
    """Error code and offset."""
    wanted = list_offsets.ListOffsetsRequestPartition(partition_index=part, timestamp=timestamp)
    message = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsRequestTopic(name=topic, partitions=[wanted])]
    )
    answer = raw.ask(ApiKey.LIST_OFFSETS, LIST_V, list_offsets.encode_request(message, LIST_V))
    result = list_offsets.decode_response(answer, LIST_V).topics[0].partitions[0]
    return result.error_code, result.offset


@pytest.mark.parametrize("timestamp", [-1, -2, -3, 0, 1, 2**62])
def test_known_timestamps_are_answered(raw: Raw, timestamp: int) -> None:
    assert ask_list_offsets(raw, timestamp)[0] == ErrorCode.NONE


@pytest.mark.parametrize("timestamp", [-6, -7, -(2**63)])
def test_timestamps_that_mean_nothing_are_refused(raw: Raw, timestamp: int) -> None:
    code, offset = ask_list_offsets(raw, timestamp)
    assert code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)
    assert offset == -1


def test_an_epoch_from_the_future_ends_no_later_than_the_log(raw: Raw) -> None:
    wanted = offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=INT32_MAX
    )
    message = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[offset_for_leader_epoch.OffsetForLeaderEpochRequestTopic(topic=TOPIC, partitions=[wanted])]
    )
    body = offset_for_leader_epoch.encode_request(message, 3)
    answer = offset_for_leader_epoch.decode_response(raw.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, body), 3)
    result = answer.topics[0].partitions[0]
    assert result.error_code == ErrorCode.NONE
    assert result.leader_epoch < INT32_MAX
    assert result.end_offset in (-1, ask_list_offsets(raw, -1)[1])


# -- the rest --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key_type", [-1, 3, 127])
def test_a_coordinator_of_no_kind_is_an_invalid_request(raw: Raw, key_type: int) -> None:
    message = find_coordinator.FindCoordinatorRequest(key="g", key_type=key_type)
    answer = raw.ask(ApiKey.FIND_COORDINATOR, 1, find_coordinator.encode_request(message, 1))
    assert find_coordinator.decode_response(answer, 1).error_code == ErrorCode.INVALID_REQUEST


def test_bad_input_leaves_no_traceback_in_any_log(cluster: Cluster) -> None:
    """Runs last: what was sent above is the clients' mistake, not an event that a process should fail over."""
    for log in sorted((cluster.data_dir / "run" / "log").glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            assert "Traceback" not in line, f"{log.name}: {line[:500]}"
            event = json.loads(line) if line.startswith("{") else {}
            assert event.get("level") != "error", f"{log.name}: {line[:500]}"
