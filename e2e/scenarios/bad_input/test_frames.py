"""Frames, headers and counts that no client should send.

Law: any bytes end in the right Kafka error or in a clean close. Other connections go on, no process dies, and a
connection whose request was answered stays usable.
"""

from __future__ import annotations

import contextlib
import struct

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.headers import encode_request_header
from kafscale.wire.schema import api_versions, fetch, list_groups, metadata
from kafscale.wire.varints import encode_uvarint

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import (
    FETCH_V,
    INT32_MAX,
    INT32_MIN,
    PRODUCE_V,
    TOPIC,
    batch,
    fetch_body,
    produce_body,
    send,
    usable,
)

IDLE_CONNECTIONS = 500

pytestmark = pytest.mark.timeout(120)


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
    """A fetch of no partition."""
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


def test_an_api_that_is_not_served_is_answered_with_unsupported_version(raw: Raw) -> None:
    raw.frame(encode_request_header(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 1, "x") + b"\0" * 20)
    assert raw.answer() == struct.pack(">ihqi", 1, ErrorCode.UNSUPPORTED_VERSION, 0, 0)
    assert usable(raw)


def test_an_api_that_is_not_served_and_whose_answer_has_no_error_closes_the_connection(raw: Raw) -> None:
    raw.frame(encode_request_header(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 1, "x") + b"\0" * 20)
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
    [struct.pack(">h", -2), struct.pack(">h", 32767) + b"x"],
    ids=["length-2", "longer-than-the-frame"],
)
def test_a_client_id_that_is_none_closes_the_connection(raw: Raw, client_id: bytes) -> None:
    raw.frame(struct.pack(">hhi", 3, 1, 1) + client_id)
    assert raw.is_closed()


@pytest.mark.parametrize("client_id", [b"\xff\xfe", b"\xff" * 32767], ids=["short", "long"])
def test_a_client_id_that_is_not_utf8_is_fine_for_any_service(raw: Raw, client_id: bytes) -> None:
    wanted = list_groups.encode_request(list_groups.ListGroupsRequest(), 0)
    for key, body in ((ApiKey.API_VERSIONS, b""), (ApiKey.LIST_GROUPS, b"".join(wanted))):
        raw.frame(struct.pack(">hhih", key, 0, 7, len(client_id)) + client_id + body)
        assert struct.unpack_from(">ih", raw.answer()) == (7, 0)


def test_a_name_that_is_not_utf8_is_one_that_does_not_exist(raw: Raw) -> None:
    for name in (b"\xff", b"\xff" * 10_000):
        body = struct.pack(">ih", 1, len(name)) + name
        answer = metadata.decode_response(raw.ask(ApiKey.METADATA, 1, [body]), 1)
        assert [(topic.name, topic.error_code) for topic in answer.topics] == [("\ufffd" * len(name), 17)]


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


def test_bytes_after_the_last_field_of_a_request_are_ignored(raw: Raw) -> None:
    raw.request(ApiKey.METADATA, 1, [struct.pack(">i", 0) + b"more"])
    assert metadata.decode_response(raw.answer_to(ApiKey.METADATA, 1), 1).topics == []
    assert usable(raw)
