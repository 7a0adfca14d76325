"""The bytes of classic consumers, as another client writes them; and bytes of no client."""

from __future__ import annotations

import struct

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st
from kafscale.wire.consumer_protocol import assigned, subscribed


@pytest.mark.parametrize("version", [0, 3])
def test_what_another_client_writes_is_read(version: int) -> None:
    metadata = bytes(ConsumerProtocolMemberMetadata(version, ["a", "b"], b"user data").encode())
    given_to = bytes(
        ConsumerProtocolMemberAssignment(version, [("a", [0, 2]), ("b", [])], b"user data").encode()
    )
    assert subscribed(metadata) == ["a", "b"]
    assert assigned(given_to) == [("a", 0), ("a", 2)]
    for cut in range(2 + 4 + 2 * (2 + 1)):
        assert subscribed(metadata[:cut]) is None
    for cut in range(2 + 4 + (2 + 1 + 4 + 2 * 4) + (2 + 1 + 4)):
        assert assigned(given_to[:cut]) is None


@given(st.binary(max_size=60))
def test_no_bytes_of_a_client_do_harm(data: bytes) -> None:
    assigned(data)
    subscribed(data)


@pytest.mark.parametrize("count", [-1, 0x7FFF_FFFF])
def test_counts_that_the_bytes_do_not_hold_are_no_counts(count: int) -> None:
    assert assigned(struct.pack(">hih6si", 0, 1, 6, b"orders", count)) is None
    assert subscribed(struct.pack(">hi", 0, count)) is None
