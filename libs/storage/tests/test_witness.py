"""Witnesses of etcd's history: their names, and what it means if etcd and the bucket do not agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.etcd.pool import Revisions
from kafscale.storage.history.witness import (
    WentBack,
    Witness,
    compared,
    decode_made_ms,
    encode_made,
    first_of,
    history_prefix,
    outdated,
    parse_witness,
    parse_witness_key,
    witness_key,
)
from kafscale.storage.keys import Keyspace

KEYS = Keyspace("ns")


def witness(number: int, generation: int = 0, nonce: int = 0) -> Witness:
    return Witness(generation=generation, number=number, nonce=nonce.to_bytes(8, "big"))


WITNESSES = st.builds(
    Witness,
    generation=st.integers(0, 10**8 - 1),
    number=st.integers(0, 10**12 - 1),
    nonce=st.binary(min_size=8, max_size=8),
)


@given(WITNESSES, WITNESSES)
def test_a_name_is_read_back_and_names_sort_as_witnesses_do(one: Witness, other: Witness) -> None:
    assert parse_witness(str(one)) == one
    assert parse_witness_key(KEYS, witness_key(KEYS, one)) == one
    assert (str(one) < str(other)) == (one < other)


@pytest.mark.parametrize(
    "name", ["", "stopped", "1-2-3", f"{first_of(0, bytes(8))}x", f"x{first_of(0, bytes(8))}"]
)
def test_other_names_are_no_witnesses(name: str) -> None:
    assert parse_witness(name) is None


def test_the_names_are_those_of_the_documents() -> None:
    name = "00000001-000000000002-00000000000000ff"
    assert witness_key(KEYS, witness(2, generation=1, nonce=255)) == b"/kafscale/ns/h/" + name.encode()
    assert history_prefix(KEYS) == "ns/@kafscale/history/"


def test_a_time_that_cannot_be_read_is_long_ago() -> None:
    assert decode_made_ms(encode_made(1_700_000_000_000)) == 1_700_000_000_000
    assert decode_made_ms(b"\xff") == decode_made_ms(b"") == 0


def test_a_new_cluster_has_no_witness() -> None:
    assert compared([], []) is None


def test_etcd_is_ahead_of_the_bucket() -> None:
    assert compared([witness(4), witness(5)], [witness(3), witness(4)]) == witness(5)
    assert compared([witness(4)], []) == witness(4), "the bucket gets it"
    assert compared([witness(4), witness(5)], [witness(5)]) == witness(5)


@pytest.mark.parametrize(
    "known",
    [
        [],
        [witness(3)],
        [witness(4)],
        [witness(5, nonce=9)],
        [witness(9, nonce=9)],
        [witness(5, generation=1)],
    ],
    ids=["emptied", "restored", "just before", "another etcd", "one that goes on", "another generation"],
)
def test_the_newest_witness_of_the_bucket_must_be_in_etcd(known: list[Witness]) -> None:
    with pytest.raises(WentBack):
        compared(known, [witness(3), witness(4), witness(5)])


def test_of_two_with_one_number_both_must_be_in_etcd() -> None:
    both = [witness(5, nonce=1), witness(5, nonce=2)]
    assert compared(both, both) == both[1]
    for one in both:
        with pytest.raises(WentBack):
            compared([one], both)


def test_the_generation_counts_before_the_number() -> None:
    assert compared([witness(0, generation=2)], [witness(7), witness(0, generation=2)]) == witness(
        0, generation=2
    )


def test_the_newest_are_kept() -> None:
    some = [witness(number) for number in (3, 1, 2)]
    assert outdated(some, 2) == [witness(1)]
    assert outdated(some, 3) == outdated([], 1) == []


def test_a_revision_may_not_fall_below_one_that_was_known_when_the_request_was_sent() -> None:
    revisions = Revisions()
    for known, answered in ((0, 7), (7, 7), (7, 9), (7, 8), (9, 9)):  # 8: sent before 9 was answered
        revisions.note(known, answered)
        assert revisions.fell is None
    assert revisions.newest == 9
    revisions.note(9, 8)
    revisions.note(9, 5)
    assert revisions.fell == (9, 8), "the first one counts"
