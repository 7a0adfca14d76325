"""Headers: golden bytes, every key's versions against kio, and whatever a socket may bring instead."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.apis import FLEXIBLE_FROM, ApiKey
from kafscale.wire.errors import WireError
from kafscale.wire.headers import (
    CLIENT_ID_BYTES_MAX,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from kafscale.wire.varints import TAGS_MAX, encode_uvarint
from kio.index import UnknownEntity, load_payload_module
from kio.static.constants import EntityType
from wire_values import quick

KEYS_IN_KIO = [key for key in ApiKey if key not in {4, 5, 6, 7}]  # brokers of old spoke those to one another


def test_a_plain_request_header_is_these_bytes() -> None:
    header = b"\x00\x00\x00\x08\x00\x00\x00\x07\x00\x03abc"
    assert encode_request_header(ApiKey.PRODUCE, 8, 7, "abc") == header
    assert decode_request_header(header + b"body") == (RequestHeader(0, 8, 7, "abc"), 13)


def test_a_flexible_request_header_keeps_the_plain_client_id_and_adds_a_tag_count() -> None:
    header = b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x07rdkafka\x00"
    assert encode_request_header(ApiKey.API_VERSIONS, 3, 1, "rdkafka") == header
    assert decode_request_header(memoryview(header)) == (RequestHeader(18, 3, 1, "rdkafka"), 18)


def test_a_null_client_id_is_read_as_none_and_an_empty_one_as_empty() -> None:
    assert decode_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x02\xff\xff")[0].client_id is None
    assert decode_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x02\x00\x00")[0].client_id == ""
    assert encode_request_header(3, 1, 2).endswith(b"\xff\xff")


def test_the_header_of_a_version_we_do_not_know_is_read_so_that_it_can_be_answered() -> None:
    header, body = decode_request_header(
        b"\x00\x12\x00\x05\x00\x00\x00\x09\x00\x03kgo\x00\x04kgo\x06v1.22\x00"
    )
    assert header == RequestHeader(18, 5, 9, "kgo")
    assert body == 14


def test_the_answer_to_api_versions_has_a_plain_header_in_every_version() -> None:
    for version in range(6):
        assert decode_response_header(b"\x00\x00\x00\x4d\x00", ApiKey.API_VERSIONS, version) == (77, 4)
    assert decode_response_header(b"\x00\x00\x00\x4d\x00", ApiKey.METADATA, 9) == (77, 5)
    assert decode_response_header(b"\x00\x00\x00\x4d\x00", ApiKey.METADATA, 8) == (77, 4)
    assert decode_response_header(b"\x00\x00\x00\x4d\x00", ApiKey.SASL_HANDSHAKE, 1) == (77, 4)


def test_only_the_oldest_controlled_shutdown_has_no_client_id() -> None:
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 1) == 1
    header = encode_request_header(ApiKey.CONTROLLED_SHUTDOWN, 0, 5, "gone")
    assert decode_request_header(header) == (RequestHeader(7, 0, 5, None), 8)


@pytest.mark.oracle
@pytest.mark.parametrize("key", KEYS_IN_KIO, ids=lambda key: key.name)
def test_header_versions_of_every_key_are_those_of_kio(key: ApiKey) -> None:
    known = 0
    border = FLEXIBLE_FROM[key]
    for version in sorted({0, 1, 3, border - 1, border} & set(range(20))):
        for kind, ours in (
            (EntityType.request, request_header_version),
            (EntityType.response, response_header_version),
        ):
            try:
                module = load_payload_module(key, version, kind)
            except UnknownEntity:
                continue
            payload = next(t for t in vars(module).values() if getattr(t, "__type__", None) == kind)
            assert ours(key, version) == payload.__header_schema__.__version__
            known += 1
    assert known > 0


@pytest.mark.parametrize("key", [-1, 93, 1000, 32767, int.from_bytes(b"GE", "big")])
def test_an_api_key_that_kafka_does_not_know_is_refused(key: int) -> None:
    with pytest.raises(WireError, match="unknown API key"):
        decode_request_header(struct.pack(">hhih", key, 0, 1, -1))


def test_tls_and_http_on_the_port_are_no_headers() -> None:
    for greeting in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        with pytest.raises(WireError):
            decode_request_header(greeting)


@given(st.binary(max_size=40))
@quick(300)
def test_any_bytes_are_a_header_or_a_wire_error(data: bytes) -> None:
    try:
        header, body = decode_request_header(data)
    except WireError:
        return
    assert 8 <= body <= len(data)
    assert FLEXIBLE_FROM[header.api_key] > 0 or header.api_key >= 0


@given(
    st.sampled_from([key for key in ApiKey if key != ApiKey.CONTROLLED_SHUTDOWN]),
    st.integers(0, 20),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.none() | st.text(max_size=20),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(max_size=200)), max_size=3),
)
@quick(200)
def test_a_header_survives_with_any_tags_and_is_refused_when_cut(
    key: ApiKey,
    version: int,
    correlation_id: int,
    client_id: str | None,
    tags: list[tuple[int, bytes]],
) -> None:
    data = encode_request_header(key, version, correlation_id, client_id)
    if request_header_version(key, version) == 2:
        fields = b"".join(encode_uvarint(tag) + encode_uvarint(len(v)) + v for tag, v in tags)
        data = data[:-1] + encode_uvarint(len(tags)) + fields
    assert decode_request_header(data + b"body") == (
        RequestHeader(key, version, correlation_id, client_id),
        len(data),
    )
    for cut in range(len(data)):
        with pytest.raises(WireError):
            decode_request_header(data[:cut])


@pytest.mark.parametrize("tail", [b"\xff\xfe", b"\x80\x00", b"\x7f\xffshort", b"\x00\x02\xff"])
def test_a_client_id_of_an_impossible_length_is_refused(tail: bytes) -> None:
    with pytest.raises(WireError):
        decode_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x02" + tail)


def test_what_is_not_utf8_in_a_client_id_is_replaced_and_the_id_stays_as_long_as_others_may_be() -> None:
    for sent, read in (
        (b"b\xfcro", "b\ufffdro"),
        (b"\xc3\x28", "\ufffd("),
        (b"\xff" * CLIENT_ID_BYTES_MAX, "\ufffd" * (CLIENT_ID_BYTES_MAX // 3)),
    ):
        length = struct.pack(">h", len(sent))
        header, end = decode_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x02" + length + sent + b"body")
        assert (header.client_id, end) == (read, 10 + len(sent))


@pytest.mark.parametrize("count", [TAGS_MAX + 1, (1 << 32) - 1, (1 << 32)])
def test_a_header_with_more_tags_than_anybody_sends_is_refused(count: int) -> None:
    data = b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff" + encode_uvarint(count) + bytes(4 * TAGS_MAX)
    with pytest.raises(WireError):
        decode_request_header(data)


def test_a_tag_that_reaches_behind_the_end_is_refused() -> None:
    data = b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff\x01\x00\x05ab"
    with pytest.raises(WireError):
        decode_request_header(data)
    with pytest.raises(WireError):
        decode_response_header(b"\x00\x00\x00\x01\x01\x00\x05ab", ApiKey.METADATA, 9)


def test_a_response_header_that_is_cut_short_is_refused() -> None:
    assert decode_response_header(b"\xff\xff\xff\xfb\x00", ApiKey.METADATA, 9) == (-5, 5)
    for data in (b"", b"\x00\x00\x00", b"\x00\x00\x00\x01"):
        with pytest.raises(WireError):
            decode_response_header(data, ApiKey.METADATA, 9)


def test_a_client_id_too_long_for_its_length_is_not_written() -> None:
    with pytest.raises(WireError):
        encode_request_header(3, 1, 1, "x" * 32768)
