"""Every message in every version, byte for byte against codecs that share nothing with ours.

The law: for any value, our bytes are theirs, and what they read under a field's name is what we wrote there.
"""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.schema.api_versions import ApiVersionsResponse
from wire_oracles import (
    WRONG_IN_OLD,
    kafka_python_class,
    kafka_python_read,
    kafka_python_write,
    kio_entity,
    kio_random,
    kio_read,
    kio_write,
    old_class,
)
from wire_reference import Reference
from wire_values import Case, cases, fields_of, present, quick, snake, values

ALL = cases()
WITH_KIO = [case for case in ALL if kio_entity(case) is not None]
WITH_KAFKA_PYTHON = [case for case in ALL if kafka_python_class(case) is not None]
WITH_OLD = [case for case in ALL if old_class(case) is not None and not case.flexible]
SETS_TO_KAFKA_PYTHON = {
    "authorized_operations",
    "topic_authorized_operations",
    "cluster_authorized_operations",
}


def test_every_version_of_every_message_has_an_oracle() -> None:
    judged = {str(case) for case in (*WITH_KIO, *WITH_KAFKA_PYTHON, *WITH_OLD)}
    assert judged == {str(case) for case in ALL} - {WRONG_IN_OLD}
    assert len(judged) > 400, "the oracles read the package as it is"


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_value_is_written_as_the_protocol_guide_says_and_read_back(case: Case) -> None:
    @quick(5)
    @given(values(case))
    def check(message: Any) -> None:
        data = case.encode(message)
        assert data == Reference(case).encode(message)
        assert case.decode(data) == message
        assert case.decode(memoryview(data)) == message
        assert case.encode(case.decode(bytearray(data))) == data

    check()


@pytest.mark.oracle
@pytest.mark.parametrize("case", WITH_KIO, ids=str)
def test_kio_writes_again_what_it_read_from_us(case: Case) -> None:
    entity = kio_entity(case)

    @quick(3)
    @given(values(case))
    def check(message: Any) -> None:
        data = case.encode(message)
        assert kio_write(entity, kio_read(entity, data)) == data

    check()


@pytest.mark.oracle
@pytest.mark.parametrize("case", WITH_KIO, ids=str)
def test_we_write_again_what_we_read_from_kio(case: Case) -> None:
    entity = kio_entity(case)

    @quick(3)
    @given(st.integers(0, 1 << 32))
    def check(seed: int) -> None:
        data = kio_write(entity, kio_random(entity, None, random.Random(seed)))
        assert case.encode(case.decode(data)) == data

    check()


@pytest.mark.oracle
@pytest.mark.parametrize("case", WITH_KAFKA_PYTHON, ids=str)
def test_kafka_python_reads_our_fields_under_their_names(case: Case) -> None:
    cls = kafka_python_class(case)

    @quick(3)
    @given(values(case))
    def check(message: Any) -> None:
        if is_failed_api_versions(message):
            return
        data = case.encode(message)
        theirs = kafka_python_read(case, cls, data)
        assert_same_fields(case, fields_of(case), message, theirs)
        assert kafka_python_write(case, theirs) == data

    check()


@pytest.mark.oracle
@pytest.mark.parametrize("case", WITH_OLD, ids=str)
def test_a_codec_written_by_hand_agrees_on_old_versions(case: Case) -> None:
    cls = old_class(case)

    @quick(3)
    @given(values(case))
    def check(message: Any) -> None:
        if is_failed_api_versions(message):
            return
        data = case.encode(message)
        stream = BytesIO(data)
        theirs = cls.decode(stream)
        assert stream.read() == b""
        assert theirs.encode() == data

    check()


def test_the_version_whose_oracle_is_wrong_has_the_layout_of_the_next() -> None:
    first = next(case for case in ALL if str(case) == WRONG_IN_OLD)

    @quick(5)
    @given(values(first))
    def check(message: Any) -> None:
        assert first.encode(message) == first._replace(version=1).encode(message)

    check()


def is_failed_api_versions(message: Any) -> bool:
    """kafka-python reads any failed answer to ApiVersions as version 0, whatever was asked."""
    return isinstance(message, ApiVersionsResponse) and message.error_code != 0


def assert_same_fields(case: Case, fields: list[dict[str, Any]], ours: Any, theirs: Any) -> None:
    """Field by field, under Kafka's names: bytes alone do not show two fields of one type exchanged."""
    for field in fields:
        name = snake(field["name"])
        if not present(field, case.version) or name in SETS_TO_KAFKA_PYTHON:
            continue
        mine, other = getattr(ours, name), getattr(theirs, name)
        if other is None and "tag" in field:  # theirs has no default for a struct that was not sent
            assert mine == getattr(type(ours)(), name), name
            continue
        if "fields" in field and mine is not None:
            many = field["type"].startswith("[]")
            pairs = zip(mine, other, strict=True) if many else [(mine, other)]
            for one, two in pairs:
                assert_same_fields(case, field["fields"], one, two)
        else:
            assert getattr(other, "bytes", other) == mine, name
