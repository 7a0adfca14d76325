"""Whatever arrives, decoding gives a value or a WireError, and costs no more memory than it must.

Every length of every message is bent, every message is cut at every byte, and bytes are drawn at random.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.errors import WireError
from kafscale.wire.schema import api_versions, fetch, metadata, produce
from kafscale.wire.schema_runtime import ELEMENTS_MAX_REQUEST
from kafscale.wire.varints import TAGS_MAX
from wire_reference import Length, Reference, uvarint
from wire_values import Case, cases, quick, values

ALL = cases()
FLEXIBLE = [case for case in ALL if case.flexible]
PEAK_BYTES_MAX = 1 << 20
CUTS_MAX = 50


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_message_cut_anywhere_is_refused_and_only_a_request_may_be_too_long(case: Case) -> None:
    @quick(2)
    @given(values(case))
    def check(message: Any) -> None:
        data = case.encode(message)
        for cut in range(0, len(data), max(1, len(data) // CUTS_MAX)):
            with pytest.raises(WireError):
                case.decode(data[:cut])
        if case.kind == "request":
            assert case.decode(data + b"\x00\x01") == case.decode(data)
            return
        with pytest.raises(WireError):
            case.decode(data + b"\x00")

    check()


@pytest.mark.parametrize("case", ALL, ids=str)
def test_no_length_can_be_a_lie(case: Case) -> None:
    @quick(2)
    @given(values(case))
    def check(message: Any) -> None:
        reference = Reference(case)
        data = reference.encode(message)
        for length in reference.lengths[:40]:
            for lie in lies(length):
                with pytest.raises(WireError):
                    case.decode(data[: length.offset] + lie + data[length.offset + length.size :])

    check()


def lies(length: Length) -> list[bytes]:
    """What may never stand there: more than there is or than a number holds, null where it is not allowed."""
    if length.form == "uvarint":
        bad = [uvarint((1 << 32) - 1), uvarint((1 << 35) - 1), b"\x80\x80\x80\x80\x80\x01", uvarint(1 << 27)]
        return bad if length.nullable else [*bad, b"\x00", b"\x80\x00"]
    biggest = 32767 if length.form == "h" else 2147483647
    numbers = [biggest, -2, -biggest - 1] + ([] if length.nullable else [-1])
    return [struct.pack(f">{length.form}", number) for number in numbers]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_bent_and_random_bytes_give_a_value_or_a_wire_error(case: Case) -> None:
    @quick(2)
    @given(values(case), st.integers(0, 1 << 32))
    def check(message: Any, seed: int) -> None:
        rng = random.Random(seed)
        data = case.encode(message)
        for _ in range(25):
            bent = bytearray(data or b"\x00")
            for _ in range(rng.randint(1, 4)):
                bent[rng.randrange(len(bent))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            value_or_wire_error(case, bytes(bent))
            value_or_wire_error(case, rng.randbytes(rng.randint(0, 60)))

    check()


def value_or_wire_error(case: Case, data: bytes) -> None:
    try:
        message = case.decode(data)
    except WireError:
        return
    assert case.decode(case.encode(message)) == message


@pytest.mark.parametrize("case", FLEXIBLE, ids=str)
def test_tagged_fields_of_later_versions_are_passed_over_in_every_struct(case: Case) -> None:
    @quick(3)
    @given(values(case))
    def check(message: Any) -> None:
        assert case.decode(Reference(case, unknown_tags=True).encode(message)) == message

    check()


def test_an_allocation_bomb_costs_nothing() -> None:
    bombs = [
        (metadata.decode_request, b"\x7f\xff\xff\xff", 1),
        (metadata.decode_request, b"\xff\xff\xff\xff\x07" + bytes(30), 9),
        (produce.decode_request, b"\xff\xff\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff", 3),
        (fetch.decode_response, bytes(10) + b"\xff\xff\xff\xff\x0f" + bytes(50), 12),
        (fetch.decode_request, bytes(21) + b"\xff\xff\xff\xff\x0f", 12),
    ]
    tracemalloc.start()
    try:
        for decode, data, version in bombs:
            with pytest.raises(WireError):
                decode(data, version)
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES_MAX
    finally:
        tracemalloc.stop()


def test_a_request_holds_no_more_elements_than_the_bound_even_when_the_bytes_are_there() -> None:
    many = struct.pack(">i", ELEMENTS_MAX_REQUEST + 1) + bytes(2 * (ELEMENTS_MAX_REQUEST + 1))
    with pytest.raises(WireError, match="elements"):
        metadata.decode_request(many, 1)
    enough = struct.pack(">i", ELEMENTS_MAX_REQUEST) + bytes(2 * ELEMENTS_MAX_REQUEST)
    topics = metadata.decode_request(enough, 1).topics
    assert topics is not None
    assert len(topics) == ELEMENTS_MAX_REQUEST


def test_the_bound_counts_all_arrays_of_a_message_together() -> None:
    topic = b"\x00\x00" + struct.pack(">i", 1000) + bytes(8 * 1000)
    many = ELEMENTS_MAX_REQUEST // 1000 + 1
    data = b"\x00\x01\x00\x00\x00\x00" + struct.pack(">i", many) + topic * many
    with pytest.raises(WireError, match="elements"):
        produce.decode_request(data, 0)


@pytest.mark.parametrize("tags", [TAGS_MAX + 1, (1 << 32) - 1])
def test_more_tagged_fields_than_anybody_sends_are_refused_at_once(tags: int) -> None:
    body = b"\x01\x01" + uvarint(tags) + b"\x00\x00" * min(tags, 1 << 18)
    with pytest.raises(WireError, match="tagged fields"):
        api_versions.decode_request(body, 3)


def test_tagged_fields_in_any_order_and_repeated_are_read_as_kafka_reads_them() -> None:
    unordered = b"\x01\x01" + b"\x03" + b"\x09\x01a" + b"\x02\x00" + b"\x09\x01b"
    assert api_versions.decode_request(unordered, 3) == api_versions.ApiVersionsRequest()


def test_a_known_tag_must_be_as_long_as_it_says() -> None:
    head = api_versions.encode_response(api_versions.ApiVersionsResponse(), 3)[0][:-1]
    epoch = b"\x01\x01\x08" + struct.pack(">q", 7)
    assert api_versions.decode_response(bytes(head) + epoch, 3).finalized_features_epoch == 7
    for size in (b"\x07", b"\x09"):
        with pytest.raises(WireError, match="tag 1"):
            api_versions.decode_response(bytes(head) + b"\x01\x01" + size + struct.pack(">qb", 7, 0), 3)


def test_a_null_where_none_is_allowed_is_refused_whatever_follows_it() -> None:
    rest = b"a" * 127 + b"\x01\x00"
    assert api_versions.decode_request(b"\x80\x01" + rest, 3).client_software_name == "a" * 127
    with pytest.raises(WireError, match="client_software_name v3: null"):
        api_versions.decode_request(b"\x00\x01" + rest, 3)


def test_what_is_not_utf8_in_a_string_is_replaced_as_java_does() -> None:
    for data, text in ((b"\x02\xff\x01\x00", "\ufffd"), (b"\x04b\xfcr\x01\x00", "b\ufffdr")):
        assert api_versions.decode_request(data, 3).client_software_name == text
        with pytest.raises(WireError):
            api_versions.decode_request(data[:-1], 3)
    name = struct.pack(">ih", 1, 2) + b"\xff\xfe"  # of a message that is read through a view
    request = struct.pack(">hhi", -1, 1, 1_000) + name + struct.pack(">i", 0)
    (topic,) = produce.decode_request(request, 3).topic_data
    assert topic.name == "\ufffd\ufffd"


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_a_version_that_does_not_exist_is_a_wire_error_both_ways(version: int) -> None:
    with pytest.raises(WireError, match="unknown version"):
        produce.decode_request(b"", version)
    with pytest.raises(WireError, match="unknown version"):
        produce.encode_response(produce.ProduceResponse(), version)


def test_a_value_that_the_version_cannot_carry_is_a_wire_error() -> None:
    topic = metadata.MetadataRequestTopic(name="x" * 40000)
    request = metadata.MetadataRequest(topics=[topic])
    with pytest.raises(WireError):
        metadata.encode_request(request, 1)
    assert metadata.decode_request(metadata.encode_request(request, 9)[0], 9) == request
    with pytest.raises(WireError):
        metadata.encode_request(metadata.MetadataRequest(topics=None), 0)
    with pytest.raises(WireError):
        produce.encode_request(produce.ProduceRequest(acks=1 << 15), 3)


def test_a_wire_error_says_what_where_and_in_which_version() -> None:
    with pytest.raises(WireError) as caught:
        metadata.decode_response(bytes(18) + b"\x01", 4)
    wrong = caught.value
    assert (wrong.what, wrong.reason, wrong.version, wrong.offset) == (
        "MetadataResponse",
        "1 bytes left over",
        4,
        18,
    )
    assert str(wrong) == "MetadataResponse v4: 1 bytes left over at byte 18"
    with pytest.raises(WireError, match=r"MetadataRequest\.topics v4: 9 elements at byte 4"):
        metadata.decode_request(b"\x00\x00\x00\x09", 4)
