"""Values that only a holder of a key can make: what passes, and all that must not."""

import hashlib
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.runtime.redaction import redact_text
from kafscale.runtime.shared_cache.entries import ObjectName, sealed
from kafscale.runtime.shared_cache.opening import (
    FILE_BYTES_MAX,
    KEYS_MAX,
    BadSecretFile,
    read_mac_keys,
    read_password,
)
from kafscale.runtime.shared_cache.signed_entries import HEAD_SIZE, PIECE_BYTES, SignedEntries

NAME = ObjectName("default/orders/0/segment-1.kfs", "e1")
OLD, NEW, STRANGE = (bytes([n]) * 32 for n in (1, 2, 3))
ENTRIES = SignedEntries([OLD])
RECORD = HEAD_SIZE + PIECE_BYTES
SIZES = st.one_of(
    st.integers(0, 300),
    st.integers(0, 3).flatmap(lambda n: st.integers(-2, 2).map(lambda d: abs(n * PIECE_BYTES + d))),
)


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def cut(data: st.DataObject, whole: bytes) -> list[bytes]:
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    return [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


def ranged(value: bytes, start: int, end: int, name: ObjectName = NAME) -> bytes | None:
    """As a cache reads it from a server."""
    first, last = ENTRIES.extent(start, end)
    return ENTRIES.opened_range(name, value[first:last], start, end)


def opened(
    value: bytes, size: int, name: ObjectName = NAME, entries: SignedEntries = ENTRIES
) -> bytes | None:
    first, last = entries.whole(size)
    found = entries.opened(name, value[first:last], size)
    return None if found is None else bytes(found)


@given(SIZES, st.data())
def test_an_object_in_any_parts_is_read_back(size: int, data: st.DataObject) -> None:
    whole = content(size)
    assert opened(ENTRIES.sealed(NAME, cut(data, whole), in_ranges=False), size) == whole


@given(SIZES.filter(bool), st.data())
def test_each_range_is_read_back_from_the_pieces_around_it(size: int, data: st.DataObject) -> None:
    whole = content(size)
    value = ENTRIES.sealed(NAME, cut(data, whole), in_ranges=True)
    start = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(start + 1, size))
    first, last = ENTRIES.extent(start, end)
    assert last - first <= RECORD * ((end - 1) // PIECE_BYTES - start // PIECE_BYTES + 1), "and no piece more"
    assert ranged(value, start, end) == whole[start:end]


@given(SIZES.filter(bool), st.data())
def test_no_damage_to_the_pieces_of_a_range_passes(size: int, data: st.DataObject) -> None:
    value = ENTRIES.sealed(NAME, [content(size)], in_ranges=True)
    start = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(start + 1, size))
    first, last = ENTRIES.extent(start, end)
    found = value[first:last]
    at, bit = data.draw(st.integers(0, len(found) - 1)), 1 << data.draw(st.integers(0, 7))
    flipped = found[:at] + bytes([found[at] ^ bit]) + found[at + 1 :]
    assert ENTRIES.opened_range(NAME, flipped, start, end) is None
    assert ENTRIES.opened_range(NAME, found[:at], start, end) is None
    assert ENTRIES.opened_range(NAME, found + b"more", start, end) is None


@given(st.binary(max_size=300), st.data())
def test_no_damage_to_a_whole_object_passes(whole: bytes, data: st.DataObject) -> None:
    value = ENTRIES.sealed(NAME, [whole], in_ranges=False)
    at, bit = data.draw(st.integers(0, len(value) - 1)), 1 << data.draw(st.integers(0, 7))
    assert opened(value[:at] + bytes([value[at] ^ bit]) + value[at + 1 :], len(whole)) is None
    assert opened(value[:at], len(whole)) is None
    assert opened(value + b"m", len(whole)) is None


@given(SIZES, st.integers(0, 3 * PIECE_BYTES), st.integers(1, PIECE_BYTES))
def test_a_range_that_the_object_does_not_have_is_none(size: int, start: int, length: int) -> None:
    value = ENTRIES.sealed(NAME, [content(size)], in_ranges=True)
    found = ranged(value, start, start + length)
    assert (found is not None) == (start + length <= size)


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        (ObjectName("default/orders/0/1", "e"), ObjectName("default/orders/1/1", "e")),
        (ObjectName("default/orders/0/1", "older"), ObjectName("default/orders/0/1", "newer")),
        (ObjectName("default/orders/0/1", "e"), ObjectName("other/orders/0/1", "e")),
        (ObjectName("a:b", "c"), ObjectName("a", "b:c")),
        (ObjectName("ab", "c"), ObjectName("a", "bc")),
    ],
    ids=["another partition", "another etag", "another cluster", "a colon elsewhere", "a letter elsewhere"],
)
def test_an_entry_passes_under_its_own_name_only(stored: ObjectName, asked: ObjectName) -> None:
    whole = content(PIECE_BYTES + 10)
    value = ENTRIES.sealed(stored, [whole], in_ranges=False)
    assert opened(value, len(whole), stored) == whole
    assert opened(value, len(whole), asked) is None
    pieces = ENTRIES.sealed(stored, [whole], in_ranges=True)
    assert ranged(pieces, 5, 9, stored) == whole[5:9]
    assert ranged(pieces, 5, 9, asked) is None


def forged(value: bytes) -> bytes:
    """The MAC is what a program without the key can compute."""
    mac = hashlib.blake2b(value[HEAD_SIZE:], digest_size=16).digest()
    return value[: HEAD_SIZE - 16] + mac + value[HEAD_SIZE:]


def resized(value: bytes, size: int) -> bytes:
    """Its pieces claim to be of a larger object."""
    pieces = [value[at : at + RECORD] for at in range(0, len(value), RECORD)]
    return b"".join(piece[:4] + struct.pack(">Q", size) + piece[12:] for piece in pieces)


@pytest.mark.parametrize(
    "poison",
    [
        lambda value: value[RECORD : 2 * RECORD] + value[:RECORD] + value[2 * RECORD :],
        lambda value: value[RECORD : 2 * RECORD] * 2 + value[2 * RECORD :],
        lambda value: value[: HEAD_SIZE - 16] + value[RECORD + HEAD_SIZE - 16 :],
        lambda value: resized(value, 4 * PIECE_BYTES),
        lambda value: ENTRIES.sealed(NAME, [content(PIECE_BYTES)], in_ranges=True),
        lambda value: (
            ENTRIES.sealed(NAME, [content(4 * PIECE_BYTES)], in_ranges=True)[:RECORD] + value[RECORD:]
        ),
        lambda value: SignedEntries([STRANGE]).sealed(NAME, [content(3 * PIECE_BYTES)], in_ranges=True),
        lambda value: sealed([content(3 * PIECE_BYTES)]),
        forged,
    ],
    ids=[
        "pieces swapped",
        "a piece repeated",
        "a piece moved",
        "another size claimed",
        "a shorter object",
        "a piece of a longer object",
        "signed with another key",
        "with a checksum",
        "a hash without a key",
    ],
)
def test_what_a_writer_without_the_key_can_put_together_does_not_pass(
    poison: Callable[[bytes], bytes],
) -> None:
    whole = content(3 * PIECE_BYTES)
    value = ENTRIES.sealed(NAME, [whole], in_ranges=True)
    assert ranged(value, 10, 2 * PIECE_BYTES) == whole[10 : 2 * PIECE_BYTES]
    assert ranged(poison(value), 10, 2 * PIECE_BYTES) is None


def test_the_first_key_signs_and_all_verify() -> None:
    before, during, after = SignedEntries([OLD, NEW]), SignedEntries([NEW, OLD]), SignedEntries([NEW])
    by_old, by_new = (each.sealed(NAME, [b"object"], in_ranges=False) for each in (before, during))
    assert by_old == SignedEntries([OLD]).sealed(NAME, [b"object"], in_ranges=False)
    assert by_new == after.sealed(NAME, [b"object"], in_ranges=False)
    for entries in (before, during):
        assert opened(by_old, 6, entries=entries) == opened(by_new, 6, entries=entries) == b"object"
    assert opened(by_new, 6, entries=after) == b"object"
    assert opened(by_old, 6, entries=after) is None


def test_pieces_of_two_keys_are_no_object() -> None:
    """A writer has one key, so only an attacker would put such a value together."""
    whole = content(2 * PIECE_BYTES)
    by_old, by_new = (SignedEntries([key]).sealed(NAME, [whole], in_ranges=True) for key in (OLD, NEW))
    both = SignedEntries([OLD, NEW])
    assert both.opened_range(NAME, by_new, 0, 2 * PIECE_BYTES) == whole
    assert both.opened_range(NAME, by_old[:RECORD] + by_new[RECORD:], 0, 2 * PIECE_BYTES) is None


def test_the_format_is_the_one_that_other_versions_read() -> None:
    """Written down a second time: entries of a release stay in redis while the next one starts."""
    mac = hashlib.blake2b(key=OLD, digest_size=16, person=b"kafscale cache 2")
    mac.update(struct.pack(">IIQ", len(NAME.key), len(NAME.etag), 6))
    mac.update(NAME.key.encode() + NAME.etag.encode() + struct.pack(">Q", 0) + b"object")
    value = b"KSC2" + struct.pack(">Q", 6) + mac.digest() + b"object"
    assert ENTRIES.sealed(NAME, [b"object"], in_ranges=False) == value
    assert ENTRIES.sealed(NAME, [b"object"], in_ranges=True) == value
    assert ENTRIES.key(NAME) == "kafscale:2:default/orders/0/segment-1.kfs:e1"


# -- the files ----------------------------------------------------------------------------------------


def test_keys_are_hex_or_base64_one_in_each_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{OLD.hex()}\r\n\n  AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=  \n{'Ff' * 64}")
    assert read_mac_keys("X", file) == (OLD, NEW, b"\xff" * 64)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "it has 0 keys, not 1 to 4"),
        ("\n \n", "it has 0 keys, not 1 to 4"),
        (f"{OLD.hex()}\nhushhush!", "line 2 is neither hex nor base64"),
        ("hüsh", "line 1 is neither hex nor base64"),
        ("ab" * 31, "line 1 has 31 bytes, not 32 to 64"),
        ("ab" * 65, "line 1 has 65 bytes, not 32 to 64"),
        (f"{OLD.hex()}\n" * (KEYS_MAX + 1), "it has 5 keys, not 1 to 4"),
        ("ab" * FILE_BYTES_MAX, "more than 4096 bytes"),
    ],
)
def test_a_bad_file_of_keys_is_refused_in_a_sentence_without_them(
    tmp_path: Path, text: str, mistake: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(BadSecretFile) as refused:
        read_mac_keys("KAFSCALE_REDIS_MAC_KEY_FILE", file)
    assert str(refused.value) == f"{file} (KAFSCALE_REDIS_MAC_KEY_FILE): {mistake}"
    assert redact_text(str(refused.value)) == str(refused.value), "and the log shows it"


def test_a_password_is_the_content_without_the_line_end(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(" hush hush \n")
    assert read_password("X", file) == " hush hush "


@pytest.mark.parametrize(
    ("content", "mistake"),
    [(None, "No such file or directory"), (b"\n", "the file is empty"), (b"\xff", "not UTF-8")],
)
def test_a_bad_file_of_a_password_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, mistake: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadSecretFile) as refused:
        read_password("KAFSCALE_REDIS_PASSWORD_FILE", file)
    assert redact_text(str(refused.value)) == f"{file} (KAFSCALE_REDIS_PASSWORD_FILE): {mistake}"
